"""`generate`: from start tokens to sequences of tokens, by a search or one choice per step."""

import itertools
from collections.abc import Sequence
from numbers import Integral
from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.errors import require
from bert_tf.generation.beam_search import BeamSearch
from bert_tf.generation.contrastive_search import ContrastiveSearch
from bert_tf.generation.decoding_loop import (
    Decoding,
    DecodingStep,
    Memory,
    run_loop,
    take_rows,
    write_tokens,
)
from bert_tf.generation.generation_config import GenerationConfig
from bert_tf.generation.logits_processors import MOST_ROWS, restrict_logits
from bert_tf.generation.stop_strings import StopAutomaton
from bert_tf.ops.native import needs_static_shapes
from bert_tf.ops.philox import philox_uniform_bits_streams
from bert_tf.text.tokenizer_base import Tokenizer

_COPY_STREAMS = 2**32  # The streams of random numbers of a row are this far apart.


class GeneratedTokens(NamedTuple):
    """What `generate` returns. The sequences of a row follow each other.

    Attributes:
        token_ids: The new tokens with the end token, then the pad token, int32
            `[B * num_return_sequences, max_new_tokens]`.
        scores: For beam search, the log probability divided by the length to the power
            `length_penalty`, float32 `[B * num_return_sequences]`; otherwise None.

    Example:
        >>> bert_tf.generation.GeneratedTokens(token_ids=tf.constant([[7, 3, 0]]), scores=None)
        GeneratedTokens(token_ids=..., scores=None)
    """

    token_ids: tf.Tensor
    scores: tf.Tensor | None


def generate(
    step: DecodingStep,
    state: Any,
    start_ids: tf.Tensor,
    config: GenerationConfig,
    *,
    memory: Any = (),
    end_id: int | Sequence[int],
    pad_id: int,
    vocab_size: int,
    tokenizer: Tokenizer | None = None,
    source_ids: tf.Tensor | None = None,
    seed: int | tf.Tensor | None = None,
    row_numbers: tf.Tensor | None = None,
) -> GeneratedTokens:
    """Decodes a sequence of tokens for each row of a batch.

    All of it is in the graph: call it in a `tf.function` to trace it once. The loop ends when all
    sequences are finished. A row whose sequences are finished leaves the batch, together with other
    rows, except where XLA compiles the loop.

    Beam search reorders the state before each step, which copies it. Tensors that are the same for
    all sequences of a row and in all steps, such as the output of an encoder, are its memory.

    Args:
        step: A function `(token_ids, position, state, memory) -> (logits, state)`. It takes the
            last token of each of the n sequences, int32 `[n]`, its position, a scalar int32 (the
            start token has position 0), the state and the memory. It returns the logits of the next
            token, float `[n, V]`, and the next state, which has the same structure, dtypes and
            static shapes; and, for `penalty_alpha`, the vectors of the tokens, float `[n, H]`.
            There are at most `config.num_steps` steps. Both n and the number of rows in the memory
            may become smaller; there are always K sequences for each row of the memory, one row
            after the other.
        state: The state before the start tokens: a nest of tensors with B rows, `()` for none. The
            step gets it with `n = B * K` rows.
        start_ids: The token that each sequence begins with, below V, int32 `[B]`. It is not
            returned, but it counts as a token that must not be repeated.
        config: The `GenerationConfig`.
        memory: A nest of tensors with B rows, `()` for none.
        end_id: The id of the token that ends a sequence, or several ids, which `eos_token_id` of
            `config` replaces.
        pad_id: The id that follows the end token.
        vocab_size: V.
        tokenizer: What makes text of the tokens, for `stop_strings`.
        source_ids: The ids of the sources, -1 for padding, int32 `[B, T]`, for
            `encoder_repetition_penalty` and `encoder_no_repeat_ngram_size`.
        seed: The seed of sampling, an int or a scalar int64 tensor. None means the seed of
            `config`.
        row_numbers: Numbers below 2**31 that determine the random numbers of each row together with
            the seed, int `[B]`. None means 0 to B - 1. Other rows of the batch have no influence.
            `prefix_allowed_tokens_fn` gets them.

    Returns:
        The `GeneratedTokens`.

    Raises:
        ConfigError: If an id is not below `vocab_size`, or `num_beams` is not; if an option needs
            `source_ids`, or `bad_words_ids` forbids an end token.
        UserError: If `stop_strings` are not what the pieces of the vocabulary can write, or there
            is no tokenizer for them.

    Example:
        >>> def count_up(token_ids, position, state, memory):
        ...     return tf.one_hot(token_ids + 1, 6), state
        >>> config = bert_tf.generation.GenerationConfig(max_new_tokens=5)
        >>> bert_tf.generation.generate(
        ...     count_up, (), [0, 3], config, end_id=5, pad_id=0, vocab_size=6
        ... ).token_ids.numpy().tolist()
        [[1, 2, 3, 4, 5], [4, 5, 0, 0, 0]]

    Reference: transformers, generation/utils.py, `GenerationMixin.generate`.
    """
    end_ids = (end_id,) if isinstance(end_id, Integral) else tuple(end_id)
    check_ids(config, end_ids, pad_id, vocab_size)
    end_ids = config.eos_token_id or end_ids
    stops = StopAutomaton.of(config.stop_strings, tokenizer, vocab_size)
    num_beams, num_returned = config.num_beams, config.num_return_sequences
    start_ids = tf.convert_to_tensor(start_ids, tf.int32)
    batch = start_ids.shape[0] if start_ids.shape[0] is not None else tf.shape(start_ids)[0]
    row_numbers = tf.range(batch) if row_numbers is None else row_numbers
    has_function = config.prefix_allowed_tokens_fn is not None
    rule = "must be None where XLA compiles; see `allowed_sequences`"
    value = config.prefix_allowed_tokens_fn
    require(not (has_function and needs_static_shapes()), rule, prefix_allowed_tokens_fn=value)
    source_ids = _needed_source(config, source_ids)
    memory = Memory(memory, source_ids, row_numbers if has_function else ())
    copies = num_returned if config.do_sample else num_beams
    copies = config.top_k if config.penalty_alpha else copies
    rows = tf.range(batch * copies) // copies  # [n]: 0, 0, …, 1, 1, …
    state = take_rows(state, rows)
    start_ids = tf.gather(start_ids, rows)[:, tf.newaxis]  # [B] -> [n, 1]
    token_ids = tf.pad(start_ids, [[0, 0], [0, config.max_new_tokens]], constant_values=pad_id)
    length = token_ids.shape[1]
    token_ids = tf.reshape(token_ids, [batch, copies, length])  # [n, S] -> [B, K, S]

    decoding = (step, config, end_ids, pad_id, vocab_size, stops)
    if config.penalty_alpha:
        token_ids, scores = ContrastiveSearch(*decoding).run(state, memory, token_ids), None
    elif num_beams > 1:
        token_ids, scores = BeamSearch(*decoding).run(state, memory, token_ids)
        token_ids = token_ids[:, :num_returned]  # [B, num_return_sequences, S]
        scores = tf.reshape(scores[:, :num_returned], [-1])
    else:
        random_numbers, scores = None, None
        if config.do_sample:
            streams = tf.cast(tf.gather(row_numbers, rows), tf.int64) % MOST_ROWS  # [B] -> [n]
            streams += tf.cast(tf.range(batch * copies) % copies, tf.int64) * _COPY_STREAMS
            seed = config.seed if seed is None else seed
            random_numbers = uniform_numbers(seed, streams, config.max_new_tokens)
            random_numbers = tf.reshape(random_numbers, [batch, copies, -1])  # [n, S - 1] ->
        token_ids = TokenChoice(*decoding).run(state, memory, token_ids, random_numbers)
    # The start tokens are left out: [B, copies, S] -> [B * copies, S - 1]
    return GeneratedTokens(tf.reshape(token_ids[:, :, 1:], [-1, length - 1]), scores)


def check_ids(
    config: GenerationConfig, end_ids: tuple[int, ...], pad_id: int, vocab_size: int
) -> None:
    """Raises `ConfigError` if ids are not below `vocab_size`, or there are too few tokens."""
    named = {"end_id": end_ids, "pad_id": (pad_id,), "eos_token_id": config.eos_token_id}
    named["forced_prefix_ids"] = config.forced_prefix_ids
    biased = [sequence for sequence, _ in config.sequence_bias or ()]
    sequences = {"sequence_bias": biased, "bad_words_ids": config.bad_words_ids}
    sequences["allowed_sequences"] = config.allowed_sequences
    named |= {name: itertools.chain(*(values or ())) for name, values in sequences.items()}
    for name, ids in named.items():
        wrong = next((value for value in ids or () if not 0 <= value < vocab_size), None)
        rule = "must be at least 0 and below `vocab_size`"
        require(wrong is None, rule, **{name: wrong}, vocab_size=vocab_size)
    end_ids = config.eos_token_id or end_ids
    for sequence in config.bad_words_ids or ():
        rule = "must not be only an end token; see `min_new_tokens`"
        is_end = len(sequence) == 1 and sequence[0] in end_ids
        require(not is_end, rule, bad_words_ids=sequence)
    # Otherwise there are not as many different beams after the first token.
    num_beams, num_ends = config.num_beams, len(end_ids)
    is_enough = num_beams == 1 or num_beams < vocab_size
    require(is_enough, "must be below `vocab_size`", num_beams=num_beams, vocab_size=vocab_size)
    most = (config.top_k or 0) if config.penalty_alpha else 0
    rule = "must be at most `vocab_size` with `penalty_alpha`"
    require(most <= vocab_size, rule, top_k=config.top_k, vocab_size=vocab_size)
    rule = "must be at least one id and fewer than `vocab_size`"
    require(0 < num_ends < vocab_size, rule, end_id=end_ids, vocab_size=vocab_size)


def _needed_source(config, source_ids):
    """Returns the ids of the sources, or () if no option needs them."""
    options = ("encoder_no_repeat_ngram_size", "encoder_repetition_penalty")
    values = {name: getattr(config, name) for name in options}
    used = {name: v for name, v in values.items() if v != getattr(GenerationConfig, name)}
    require(not used or source_ids is not None, "must not be set without `source_ids`", **used)
    return tf.cast(source_ids, tf.int32) if used else ()


class Sequences(NamedTuple):
    """The sequences of each row, K of them; random numbers are uniform in [0, 1)."""

    token_ids: tf.Tensor  # int32 [B, K, S]
    stop_states: tf.Tensor  # of the `StopAutomaton`, int32 [B, K, stop strings]
    is_finished: tf.Tensor  # bool [B, K]
    random_numbers: tf.Tensor | tuple  # float64 [B, K, S - 1]; () chooses the most probable tokens


class TokenChoice(Decoding):
    """Chooses one token per step: the most probable one, or at random."""

    def run(
        self, state: Any, memory: Any, token_ids: tf.Tensor, random_numbers: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the sequences, int32 `[B, K, S]`.

        `random_numbers` are uniform in [0, 1), float64 `[B, K, S - 1]`. None chooses the most
        probable token.
        """
        is_finished = tf.zeros_like(token_ids[:, :, 0], tf.bool)
        numbers = () if random_numbers is None else random_numbers
        return run_loop(
            self._extend,
            lambda sequences: ~tf.reduce_all(sequences.is_finished, axis=1),
            Sequences(token_ids, self.stops.start(is_finished), is_finished, numbers),
            state,
            memory,
            self.config.max_new_tokens,
        ).token_ids

    def _extend(self, position, sequences, state, memory):
        """Extends the sequences, whose last known token is at `position`, by one token."""
        token_ids = sequences.token_ids  # [B, K, S]
        copies, length = token_ids.shape[1:]
        flat_ids = tf.reshape(token_ids, [-1, length])  # [B, K, S] -> [n, S]
        logits, state, _ = self.next_logits(flat_ids, position, state, memory)
        if isinstance(sequences.random_numbers, tuple):
            chosen = _first_of_the_largest(logits)
        else:
            numbers = tf.reshape(sequences.random_numbers[:, :, position], [-1])  # [B, K] -> [n]
            chosen = _draw(restrict_logits(logits, self.config), numbers)
        chosen = tf.reshape(chosen, [-1, copies])  # [n] -> [B, K]
        chosen = tf.where(sequences.is_finished, self.pad_id, chosen)
        stop_states = self.stops.advance(sequences.stop_states, chosen)
        sequences = sequences._replace(
            token_ids=write_tokens(token_ids, position + 1, chosen),
            stop_states=stop_states,
            is_finished=sequences.is_finished | self.ends(chosen, stop_states),
        )
        return sequences, state


def uniform_numbers(seed: int | tf.Tensor, streams: tf.Tensor, count: int) -> tf.Tensor:
    """Returns numbers in [0, 1) of streams int64 `[n]`, which depend on nothing else.

    They are float64 `[n, count]`.
    """
    bits = philox_uniform_bits_streams(seed, streams, count)
    return tf.cast(bits, tf.float64) * 2.0**-32


def _draw(logits, random_numbers):
    """Draws a token of each row by the inverse of the cumulative distribution, int32 `[n]`.

    Only tokens with a probability above zero are drawn, however sums are rounded.
    """
    probabilities = tf.cast(tf.nn.softmax(logits), tf.float64)  # [n, V]
    sums = tf.where(probabilities > 0, tf.cumsum(probabilities, axis=1), 0)
    threshold = random_numbers[:, tf.newaxis] * tf.reduce_max(sums, axis=1, keepdims=True)
    return _first_of_the_largest(tf.cast(sums > threshold, tf.float32))


def _first_of_the_largest(values):
    """Returns the first place of the largest value, int32 `[n]`; `tf.argmax` may return any."""
    return tf.math.top_k(values, 1).indices[:, 0]
