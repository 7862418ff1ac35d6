"""The memory of a device during a pre-training step, counted without TensorFlow.

Glossary: B sequences of a part of the batch, T sequence length, R real tokens of a part, H hidden
size, F feed-forward size, N heads, D head size, M predicted words of a part, V vocabulary.
"""

import dataclasses

from bert_tf.config import BertConfig

OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop", "ltr")  # tasks/pretraining/model.py
# For each dtype policy: bytes of a weight and of its gradient; bytes of an activation and of the
# weight that a matmul reads.
PRECISIONS = {
    "float32": (4, 4),
    "mixed_bfloat16": (4, 2),
    "mixed_float16": (4, 2),
    "bfloat16": (2, 2),
}
_FLOAT32 = 4
_SLOTS = 2  # the optimizer's m and v, float32
# Tensors of the float32 logits [M, V]: with bias, the gradient that the cross-entropy computes, and
# its product with the gradient of the loss.
_LOGITS = 3
_HEAD_ROWS = 4  # tensors [M, H] before the logits
# Tensors [R, H] of the embeddings: the sum of the tables, LayerNorm, dropout, and the rows of the
# last block in the batch [B, T, H].
_EMBEDDED_ROWS = 4
_SCORES = 3  # tensors [B, N, T, T] of stock attention: before and after the dropout, and the mask


@dataclasses.dataclass(frozen=True)
class PretrainingRun:
    """A model, and the flags of `estimate_memory` with their names.

    `ops` is "native", where only real tokens are computed and no attention scores are stored, or
    "reference", where TensorFlow's own ops do both.
    """

    config: BertConfig
    train_batch_size: int
    max_seq_length: int
    real_tokens: float = 1.0
    max_predictions_per_seq: float = 20
    objective: str = "mlm_nsp"
    precision: str = "float32"
    ops: str = "native"
    num_replicas: int = 1
    pipeline_stages: int = 1
    gradient_accumulation_steps: int = 1
    gradient_checkpointing: bool = False

    @property
    def sequences(self) -> float:
        """The number of sequences of a part, B."""
        return self.train_batch_size / self.num_replicas / self.gradient_accumulation_steps

    @property
    def tokens(self) -> float:
        """The mean number of tokens per sequence that are computed."""
        return self.max_seq_length * (self.real_tokens if self.ops == "native" else 1.0)

    @property
    def predictions(self) -> float:
        """The mean number of predicted words per sequence."""
        return self.tokens if self.objective == "ltr" else self.max_predictions_per_seq

    def blocks(self, stage: int) -> list[int]:
        """Returns the blocks of a stage, as `pipeline_stages` divides them."""
        count = self.config.num_hidden_layers
        return [block for block in range(count) if block * self.pipeline_stages // count == stage]


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


def stage_memory(run: PretrainingRun, stage: int = 0) -> Memory:
    """Returns the memory of the device that computes a stage."""
    weight_bytes, compute_bytes = PRECISIONS[run.precision]
    trained, frozen = stage_parameters(run, stage)
    copies = _FLOAT32 * trained if weight_bytes < _FLOAT32 else 0
    if compute_bytes < weight_bytes:
        copies += compute_bytes * (trained + frozen)
    # Two copies: the sum and the gradients of the part at hand, or of the all-reduce's buffer.
    gradients = 2 if run.gradient_accumulation_steps > 1 or run.num_replicas > 1 else 1
    return Memory(
        weights=weight_bytes * (trained + frozen),
        gradients=weight_bytes * trained * gradients,
        slots=_FLOAT32 * _SLOTS * trained,
        copies=copies,
        activations=stage_activations(run, stage),
    )


def stage_parameters(run: PretrainingRun, stage: int = 0) -> tuple[int, int]:
    """Returns how many parameters of a stage are trained, and how many are not."""
    config, hidden = run.config, run.config.hidden_size
    trained = sum(block_parameters(config, block) for block in run.blocks(stage))
    if stage == 0:
        trained += embedding_parameters(config)
    if stage < run.pipeline_stages - 1:
        return trained, 0
    pooler = (hidden + 1) * hidden
    trained += (hidden + 1) * hidden + 2 * hidden + config.vocab_size  # the head of masked words
    if run.objective in ("mlm_nsp", "mlm_sop"):  # the loss has a term on pairs of sentences
        return trained + pooler + (hidden + 1) * 2, 0
    return trained, pooler


def embedding_parameters(config: BertConfig) -> int:
    """Returns the parameters of the three tables and their LayerNorm."""
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    return (rows + 2) * config.hidden_size


def block_parameters(config: BertConfig, index: int = 0) -> int:
    """Returns the parameters of an encoder block, without its pruned heads."""
    hidden, wide = config.hidden_size, config.intermediate_size
    heads = len(config.kept_heads(index)) * config.head_size  # N·D
    attention = (hidden + 1) * 3 * heads + (heads + 1) * hidden
    inner = wide * (2 if config.gated_mlp else 1)
    feed_forward = (hidden + 1) * inner + (wide + 1) * hidden
    return attention + feed_forward + 2 * 2 * hidden


def stage_activations(run: PretrainingRun, stage: int = 0) -> float:
    """Returns the bytes that the forward passes of a stage store for its backward passes."""
    config, size = run.config, PRECISIONS[run.precision][1]
    row = run.sequences * run.tokens * config.hidden_size * size  # [R, H]
    blocks = [block_activations(run, block) for block in run.blocks(stage)]
    stored = len(blocks) * row + (0 if run.gradient_checkpointing else sum(blocks))
    if stage == 0:
        stored += _EMBEDDED_ROWS * row
    at_a_time = max(blocks) if run.gradient_checkpointing else 0
    if stage == run.pipeline_stages - 1:  # the memory of the heads is free after each part
        words = run.sequences * run.predictions  # M
        heads = _LOGITS * _FLOAT32 * words * config.vocab_size
        heads += _HEAD_ROWS * words * config.hidden_size * size
        if stage:  # the word embeddings come from the first stage, and their gradients go back
            heads += 2 * config.vocab_size * config.hidden_size * size
        at_a_time = max(at_a_time, heads)
    # Several stages work on several parts ("one forward, one backward").
    in_flight = min(run.gradient_accumulation_steps, run.pipeline_stages - stage)
    return in_flight * stored + at_a_time


def block_activations(run: PretrainingRun, index: int = 0) -> float:
    """Returns the bytes that a block stores in addition to its input.

    Those are the query, key and value and the output of attention [R, N·D]; the outputs of the two
    dense layers before LayerNorm and of the first LayerNorm [R, H]; the input and the output of
    GELU [R, F]. The output of the second LayerNorm is the input of the next block.
    """
    config, size = run.config, PRECISIONS[run.precision][1]
    num_heads = len(config.kept_heads(index))
    rows = run.sequences * run.tokens  # R
    wide = (4 if config.gated_mlp else 2) * config.intermediate_size
    width = 4 * num_heads * config.head_size + 3 * config.hidden_size + wide
    statistics = rows * (2 * 2 + num_heads) * _FLOAT32  # of two LayerNorms and the softmax
    scores = 0 if run.ops == "native" else _SCORES * rows * num_heads * run.tokens * size
    return rows * width * size + statistics + scores
