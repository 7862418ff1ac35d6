"""The work of a training step, counted by kind.

Glossary: R real tokens, B sequences, T sequence length, H hidden size, F feed-forward size,
N heads, n·D heads of a block times their size, M predicted words, V vocabulary.
"""

import dataclasses
from collections.abc import Mapping

from .training_run import TrainingRun

# The kinds of passes over memory, which differ in arithmetic and thus, on a CPU, in speed.
GELU, LAYER_NORM, LOGITS, COPY, OPTIMIZER = PASSES = (
    "gelu", "layer_norm", "logits", "copy", "optimizer",
)  # fmt: skip

# Full-size tensors that are read or written, forward and backward.
_GELU_FORWARD, _GELU_BACKWARD = 2, 3  # x; y and dy, x; dx
_NORM_FORWARD, _NORM_BACKWARD = 3, 5  # x, residual; y and dy, x, residual; dx, dresidual
_BIAS_FORWARD, _BIAS_BACKWARD = 2, 1  # bias_add: x; y and dy, of which the columns are summed
# The logits: bias_add (2), cross-entropy (1 read, 1 written), argmax (1), its gradient times the
# loss's (2), and the sum over rows for the bias (1).
LOGITS_PASSES = 8
# Attention scores [B, N, T, T] that stock TensorFlow passes over: softmax and dropout (4); their
# gradients (2 and 3). The native op has them in the cache.
_SCORES_FORWARD, _SCORES_BACKWARD = 4, 5
# Gather and scatter of rows around the encoder, and the embeddings' three tables, sum and dropout.
_EMBEDDING_PASSES = 16

# Float32 tensors of the size of the weights that an update reads and writes. AdamW is one pass over
# gradient, weight, m and v (7) after one over the gradients for their norm. LAMB is a chain of
# TensorFlow ops: those of `LAMB.update_step`, one by one (28 read, 19 written), and the norm.
OPTIMIZER_PASSES = {"adamw": 8, "lamb": 48}
ACCUMULATION_PASSES = 3  # the sum, the gradient; the sum


@dataclasses.dataclass(frozen=True)
class Matmul:
    """`times` matmuls `[rows, depth] x [depth, units]`."""

    rows: float
    depth: float
    units: float
    times: float

    @property
    def shape(self) -> tuple[float, float, float]:
        return self.rows, self.depth, self.units

    @property
    def flops(self) -> float:
        return 2 * self.rows * self.depth * self.units * self.times


@dataclasses.dataclass(frozen=True)
class Work:
    """What a device has to do.

    Args:
        matmuls: The dense matmuls.
        attention_flops: Those of the products in attention.
        attention_scores: The number of attention scores, N·ΣT², whose softmax is computed.
        bytes: The bytes read and written, by kind of pass.
        blocks: The number of encoder blocks.
    """

    matmuls: tuple[Matmul, ...] = ()
    attention_flops: float = 0.0
    attention_scores: float = 0.0
    bytes: Mapping[str, float] = dataclasses.field(default_factory=dict)
    blocks: int = 0

    @property
    def flops(self) -> float:
        return sum(matmul.flops for matmul in self.matmuls) + self.attention_flops


def block_work(
    run: TrainingRun,
    sequences: float,
    checkpointing: bool = False,
    stores_probabilities: bool = False,
    index: int = 0,
) -> Work:
    """Returns the forward and backward pass of an encoder block.

    Args:
        run: The run. All sequences count as having its mean length.
        sequences: B.
        checkpointing: Whether the forward pass is computed twice.
        stores_probabilities: Whether attention stores its probabilities in memory, as stock
            TensorFlow does, instead of computing QKᵀ again in the backward pass.
        index: The block, which may have pruned heads.
    """
    config, size = run.config, run.sizes.compute_bytes
    rows = sequences * run.tokens  # R
    hidden, wide = config.hidden_size, config.intermediate_size
    num_heads = len(config.kept_heads(index))
    heads = num_heads * config.head_size
    forwards = 2 if checkpointing else 1
    products = 2 * forwards + 4 + (0 if stores_probabilities else 1)
    pairs = sequences * run.tokens**2  # ΣT²
    gelu = forwards * _GELU_FORWARD + _GELU_BACKWARD
    norm = forwards * _NORM_FORWARD + _NORM_BACKWARD
    copied = (forwards * _BIAS_FORWARD + _BIAS_BACKWARD) * rows * 3 * heads
    if stores_probabilities:
        copied += (forwards * _SCORES_FORWARD + _SCORES_BACKWARD) * num_heads * pairs
    return Work(
        tuple(
            Matmul(rows, depth, units, forwards + 2)  # dx and dW
            for depth, units in (
                (hidden, 3 * heads), (heads, hidden), (hidden, wide), (wide, hidden),
            )
        ),
        attention_flops=products * 2 * heads * pairs,
        attention_scores=num_heads * pairs * (forwards + 1) / 2,
        bytes={
            GELU: gelu * rows * wide * size,
            LAYER_NORM: 2 * norm * rows * hidden * size,
            COPY: copied * size,
        },
        blocks=forwards,
    )  # fmt: skip


def embeddings_work(run: TrainingRun, sequences: float) -> Work:
    """Returns the forward and backward pass of the embeddings."""
    values = sequences * run.tokens * run.config.hidden_size * run.sizes.compute_bytes
    norm = _NORM_FORWARD + _NORM_BACKWARD
    return Work(bytes={LAYER_NORM: norm * values, COPY: _EMBEDDING_PASSES * values})


def heads_work(run: TrainingRun, sequences: float) -> Work:
    """Returns the forward and backward pass of the heads and the loss."""
    config, size = run.config, run.sizes.compute_bytes
    hidden, words = config.hidden_size, sequences * run.predictions  # M
    matmuls = [Matmul(words, hidden, hidden, 3), Matmul(words, hidden, config.vocab_size, 3)]
    if run.has_sentences:
        matmuls.append(Matmul(sequences, hidden, hidden, 3))  # the pooler
    values = words * hidden * size
    return Work(
        tuple(matmuls),
        bytes={
            GELU: (_GELU_FORWARD + _GELU_BACKWARD) * values,
            LAYER_NORM: (_NORM_FORWARD + _NORM_BACKWARD) * values,
            LOGITS: LOGITS_PASSES * words * config.vocab_size * 4,  # float32
        },
    )


def optimizer_bytes(run: TrainingRun, parameters: float) -> float:
    """Returns the bytes that an update of float32 weights reads and writes."""
    return OPTIMIZER_PASSES[run.optimizer] * 4 * parameters


def optimizer_pass(run: TrainingRun) -> str:
    """Returns the kind of pass that an update is: one op for AdamW, plain ops for LAMB."""
    return OPTIMIZER if run.optimizer == "adamw" else COPY


def accumulation_bytes(run: TrainingRun, parameters: float) -> float:
    """Returns the bytes that adding the gradients of one part reads and writes."""
    return ACCUMULATION_PASSES * run.sizes.weight_bytes * parameters
