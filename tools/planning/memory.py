"""The memory of a device during a training step.

Glossary: R real tokens, H hidden size, F feed-forward size, N heads, n·D heads of a block times
their size, M predicted words, V vocabulary.
"""

import dataclasses

from . import parameters
from .training_run import TrainingRun

_SLOTS = 2  # m and v, float32
# Of the float32 logits: with bias, the gradient that the cross-entropy computes, and its product
# with the gradient of the loss.
_LOGITS = 3
# Of [R, H]: the sum of the embeddings' tables, their LayerNorm and dropout, and the rows of the
# last block in the batch `[B, T, H]`.
_EMBEDDED_ROWS = 4


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes by purpose. `copies` are float32 masters, or weights cast for 16-bit matmuls."""

    weights: float
    gradients: float
    slots: float
    copies: float
    activations: float

    @property
    def total(self) -> float:
        return sum(dataclasses.astuple(self))


def state(
    run: TrainingRun, trained: float, frozen: float = 0.0, parts: int = 1, replicas: int = 1
) -> Memory:
    """Returns the memory of weights and of what belongs to each of them.

    Args:
        run: The run.
        trained: Number of parameters that are trained.
        frozen: Number of the others.
        parts: Number of parts of the gradient accumulation.
        replicas: Number of replicas.
    """
    sizes = run.sizes
    count = trained + frozen
    copies = 4.0 * trained if sizes.has_master_copy else 0.0
    if sizes.compute_bytes < sizes.weight_bytes:
        copies += sizes.compute_bytes * count
    return Memory(
        weights=sizes.weight_bytes * count,
        # Two copies: of the sum and of the part at hand, or of the all-reduce, which joins all.
        gradients=sizes.weight_bytes * trained * (2 if parts > 1 or replicas > 1 else 1),
        slots=4.0 * _SLOTS * trained,
        copies=copies,
        activations=0.0,
    )


def block_activations(
    run: TrainingRun, sequences: float, stores_probabilities: bool = False, index: int = 0
) -> float:
    """Returns the bytes that a block's backward pass needs of its forward pass, without its input.

    Of [R, n·D]: query, key and value, and the output of attention. Of [R, H]: the outputs of the
    two dense layers before LayerNorm and of the first LayerNorm. Of [R, F]: the input and the
    output of GELU. The second LayerNorm's output is the next block's input.

    Args:
        run: The run.
        sequences: B.
        stores_probabilities: Whether attention stores them, three tensors of its scores: before
            and after the dropout, and the mask. Then there is padding.
        index: The block, which may have pruned heads.
    """
    config, size = run.config, run.sizes.compute_bytes
    num_heads = len(config.kept_heads(index))
    width = 4 * num_heads * config.head_size + 3 * config.hidden_size
    width += 2 * config.intermediate_size
    rows = sequences * run.tokens
    statistics = rows * (2 * 2 + num_heads) * 4  # float32: of two LayerNorms and the softmax
    scores = 0.0
    if stores_probabilities:
        scores = 3 * sequences * num_heads * run.tokens**2 * size
    return rows * width * size + statistics + scores


def block_input(run: TrainingRun, sequences: float) -> float:
    """Returns the bytes of a block's input, `[R, H]`."""
    return sequences * run.tokens * run.config.hidden_size * run.sizes.compute_bytes


def embeddings_activations(run: TrainingRun, sequences: float) -> float:
    return _EMBEDDED_ROWS * block_input(run, sequences)


def heads_activations(run: TrainingRun, sequences: float) -> float:
    """Returns the bytes of the logits and of the rows before them."""
    config, words = run.config, sequences * run.predictions
    rows = 4 * words * config.hidden_size * run.sizes.compute_bytes
    return _LOGITS * 4 * words * config.vocab_size + rows


def stage_activations(
    run: TrainingRun,
    sequences: float,
    blocks: int,
    in_flight: int = 1,
    checkpointing: bool = False,
    is_first: bool = True,
    is_last: bool = True,
    stores_probabilities: bool = False,
) -> float:
    """Returns the bytes of the activations of consecutive blocks.

    Args:
        run: The run.
        sequences: Sequences per micro-batch.
        blocks: Number of blocks.
        in_flight: Number of micro-batches whose activations are held.
        checkpointing: Whether only the blocks' inputs are held, and one block is computed again.
        is_first: Whether the embeddings belong to the stage.
        is_last: Whether the heads belong to it; their memory is free after each micro-batch.
        stores_probabilities: As in `block_activations`.
    """
    of_block = block_activations(run, sequences, stores_probabilities)
    held = blocks * block_input(run, sequences)
    if not checkpointing:
        held += blocks * of_block
    if is_first:
        held += embeddings_activations(run, sequences)
    at_a_time = of_block if checkpointing else 0.0
    if is_last:
        at_a_time = max(at_a_time, heads_activations(run, sequences))
    return in_flight * held + at_a_time


def stage_parameters(run: TrainingRun, blocks: int, is_first: bool, is_last: bool) -> float:
    """Returns the number of trained parameters of a stage.

    The head shares the word embeddings, so a last stage that is not the first has a copy.
    """
    count = blocks * parameters.block(run.config)
    if is_first:
        count += parameters.embeddings(run.config)
    if is_last:
        count += parameters.heads(run)
        if not is_first:
            count += parameters.word_table(run.config)
    return count
