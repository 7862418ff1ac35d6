"""The loop of decoding: rows of the batch are extended by a token per step until they are finished.

Glossary: `m` rows that are still in the batch, of `B`; `n` sequences, the same number for each row;
`S` maximum length with the start token, `V` vocabulary.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf

from bert_tf.generation.generation_config import GenerationConfig
from bert_tf.generation.logits_processors import Known, process_logits
from bert_tf.generation.stop_strings import StopAutomaton
from bert_tf.ops.native import needs_static_shapes

# (token_ids int32 [n], position scalar int32, state, memory) -> (logits [n, V], state) or
# (logits [n, V], state, vectors [n, H])
DecodingStep = Callable[[tf.Tensor, tf.Tensor, Any, Any], tuple]


class Memory(NamedTuple):
    """What the loop does not change, with one row per row of the batch."""

    of_model: Any  # a nest of tensors
    source_ids: tf.Tensor | tuple = ()  # int32 [B, T], see `Known`
    row_numbers: tf.Tensor | tuple = ()  # int [B], see `Known`


@dataclasses.dataclass(frozen=True)
class Decoding:
    """What beam search and the choice of one token per step have in common.

    A subclass has `run(state, memory, token_ids)`, which extends sequences until all are finished.
    Its arguments are the state of the model before the start tokens, with B * K rows; the `Memory`
    of B rows; and the start tokens, followed by the pad token, int32 `[B, K, S]`.

    Attributes:
        step: The model.
        config: The `GenerationConfig`.
        end_ids, pad_id: The ids of the tokens that end a sequence, and the one that follows it.
        vocab_size: V.
        stops: What ends a sequence in addition to a token.
    """

    step: DecodingStep
    config: GenerationConfig
    end_ids: tuple[int, ...]
    pad_id: int
    vocab_size: int
    stops: StopAutomaton

    def next_logits(
        self,
        token_ids: tf.Tensor,
        position: tf.Tensor,
        state: Any,
        memory: Memory,
        transformed: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
    ) -> tuple[tf.Tensor, Any, tf.Tensor | None]:
        """Calls the step with the tokens at `position` of sequences int32 `[n, S]`.

        Returns:
            The processed logits float32 `[n, V]`, transformed before; the state after the step, in
            a graph with the same static shapes as before, which a loop requires; and the vectors
            `[n, H]` of the tokens, or None if the step does not return them.
        """
        last_ids = tf.gather(token_ids, position, axis=1)
        logits, after, *vectors = self.step(last_ids, position, state, memory.of_model)
        tf.nest.assert_same_structure(state, after)
        if not tf.executing_eagerly():
            after = tf.nest.map_structure(
                lambda old, new: tf.ensure_shape(new, old.shape), state, after
            )
        shape = [token_ids.shape[0], self.vocab_size]
        logits = transformed(tf.ensure_shape(tf.cast(logits, tf.float32), shape))

        def of_sequences(values):  # [m, …] -> [n, …]
            if isinstance(values, tuple):
                return values
            return tf.repeat(values, tf.shape(token_ids)[0] // tf.shape(values)[0], axis=0)

        known = Known(token_ids, position, self.end_ids, *map(of_sequences, memory[1:]))
        return process_logits(logits, self.config, known), after, next(iter(vectors), None)

    def ends(self, token_ids: tf.Tensor, stop_states: tf.Tensor) -> tf.Tensor:
        """Returns whether sequences end with tokens int32 `[...]`, after which are these states."""
        is_end = tf.reduce_any(token_ids[..., tf.newaxis] == tf.constant(self.end_ids), axis=-1)
        return is_end | self.stops.is_found(stop_states)


def write_tokens(token_ids: tf.Tensor, position: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
    """Returns `token_ids`, `[..., S]`, with `values`, `[...]`, at `position`."""
    is_here = tf.range(token_ids.shape[-1]) == position  # [S]
    return tf.where(is_here, values[..., tf.newaxis], token_ids)


Progress = TypeVar("Progress")

# Rows leave the batch when they are at least a quarter of it: leaving copies the state.
_KEPT, _OF = 3, 4


class _Rows(NamedTuple):
    numbers: tf.Tensor  # which rows of the batch they are, int32 [m]
    progress: Any  # [m, ...]
    state: Any  # [n, ...]
    memory: Any  # [m, ...]


def run_loop(
    extend: Callable[[tf.Tensor, Progress, Any, Any], tuple[Progress, Any]],
    is_open: Callable[[Progress], tf.Tensor],
    progress: Progress,
    state: Any,
    memory: Any,
    max_steps: int,
) -> Progress:
    """Extends the rows until all are finished, and returns their progress.

    Finished rows leave the batch. Where XLA compiles the loop, all rows stay in the batch, because
    it needs static shapes.

    Args:
        extend: A function of the position, a scalar int32, the progress, the state and the memory
            of m rows. It returns the progress and the state after the step.
        is_open: A function from a progress to whether each row is unfinished, bool `[m]`. An
            unfinished row does not depend on others, and a finished one does not change.
        progress, memory: What the loop computes and what stays the same: nests with B rows.
        state: The state of the model: a nest of tensors `[n, ...]`.
        max_steps: The maximum number of steps.
    """
    may_leave = not needs_static_shapes()
    num_rows = tf.shape(tf.nest.flatten(progress)[0])[0]
    rows = _Rows(tf.range(num_rows), progress, state, memory)

    def body(position, results, rows):
        progress, state = extend(position, rows.progress, rows.state, rows.memory)
        rows = rows._replace(progress=progress, state=state)
        if may_leave:
            open_rows = is_open(progress)
            num_open = tf.math.count_nonzero(open_rows, dtype=tf.int32)
            results, rows = tf.cond(
                (num_open > 0) & (num_open * _OF <= tf.size(open_rows) * _KEPT),
                lambda: (_written(results, rows), _taken(rows, tf.where(open_rows)[:, 0])),
                lambda: (results, rows),
            )
        return position + 1, results, rows

    variables = (tf.constant(0), progress, rows)
    shapes = tf.nest.map_structure(lambda value: value.shape, variables)
    if may_leave:
        of_any_rows = tf.nest.map_structure(lambda v: tf.TensorShape([None, *v.shape[1:]]), rows)
        shapes = (*shapes[:2], of_any_rows)
    _, results, rows = tf.while_loop(
        lambda position, results, rows: tf.reduce_any(is_open(rows.progress)),
        body,
        variables,
        shape_invariants=shapes,
        maximum_iterations=max_steps,
    )
    return _written(results, rows) if may_leave else rows.progress


def take_rows(nest: Any, rows: tf.Tensor) -> Any:
    """Returns a nest of these rows, in this order: int `[m]`."""
    return tf.nest.map_structure(lambda value: tf.gather(value, rows, axis=0), nest)


def _taken(rows: _Rows, places: tf.Tensor) -> _Rows:
    """Returns some of the rows, by their places among those that are there."""

    def of_sequences(values):
        grouped = tf.reshape(values, tf.concat([[num_rows, -1], tf.shape(values)[1:]], axis=0))
        taken = tf.gather(grouped, places)  # [n, ...] -> [m, n / m, ...] -> [taken, n / m, ...]
        taken = tf.reshape(taken, tf.concat([[-1], tf.shape(values)[1:]], axis=0))
        return tf.ensure_shape(taken, [None, *values.shape[1:]])

    num_rows = tf.size(rows.numbers)
    state = tf.nest.map_structure(of_sequences, rows.state)
    others = take_rows(rows._replace(state=()), places)
    return others._replace(state=state)


def _written(results, rows: _Rows):
    """Returns the results of all rows with the progress of these."""
    places = rows.numbers[:, tf.newaxis]  # [m, 1]
    return tf.nest.map_structure(
        lambda old, new: tf.tensor_scatter_nd_update(old, places, new), results, rows.progress
    )
