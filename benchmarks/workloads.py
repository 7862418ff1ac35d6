"""The inputs of all peers: token ids, their division into batches, and their cost in FLOPs.

Glossary: B batch, T length, H hidden size, P masked positions, R real tokens.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

# Sequence lengths as in a service: many short texts, few long ones. 64 film reviews have a mean
# length of 29 tokens and a maximum of 97.
RAGGED_SEQUENCES = 64
RAGGED_MEAN = 30
RAGGED_SHORTEST, RAGGED_LONGEST = 8, 128
RAGGED_SIGMA = 0.5  # standard deviation of the logarithm

MAX_PREDICTIONS = 20  # google-research/bert run_pretraining.py, max_predictions_per_seq

ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")
MASKED_INPUTS = ("masked_positions", "masked_ids", "masked_weights")

# Batch sizes for peers with padding, which sort the sequences by length.
BUCKETS = (4, 8, 16, None)  # None: all sequences in one batch

_SEED = 20260101
_FIRST_ORDINARY_ID = 5  # smaller ids are [PAD], [UNK], [CLS], [SEP], [MASK]


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sequences to encode or to train on, by their lengths in tokens, which differ if ragged."""

    name: str
    lengths: tuple[int, ...]
    is_ragged: bool

    @classmethod
    def dense(cls, batch: int, length: int) -> "Workload":
        return cls(f"{batch}x{length}", (length,) * batch, is_ragged=False)

    @classmethod
    def ragged(cls, count: int = RAGGED_SEQUENCES, longest: int = RAGGED_LONGEST) -> "Workload":
        """Creates sequences with lognormal lengths, equal in every call with the same arguments."""
        generator = np.random.default_rng(_SEED)
        mu = np.log(RAGGED_MEAN) - RAGGED_SIGMA**2 / 2
        lengths = np.rint(generator.lognormal(mu, RAGGED_SIGMA, count)).astype(int)
        lengths = np.clip(lengths, RAGGED_SHORTEST, longest)
        return cls(f"ragged{count}", tuple(int(length) for length in lengths), is_ragged=True)

    @property
    def tokens(self) -> int:
        return sum(self.lengths)

    def describe(self) -> str:
        if not self.is_ragged:
            return f"batch {len(self.lengths)}, length {self.lengths[0]}"
        return (
            f"{len(self.lengths)} sequences, {self.tokens} tokens, mean "
            f"{self.tokens / len(self.lengths):.0f}, longest {max(self.lengths)}"
        )


def groups(workload: Workload, bucket: int | None) -> list[np.ndarray]:
    """Divides the sequences into batches and returns the indices of the sequences of each batch.

    `bucket` is the number of sequences per batch, after sorting by length; None puts all of them in
    one batch in their order.
    """
    count = len(workload.lengths)
    if bucket is None or bucket >= count:
        return [np.arange(count)]
    order = np.argsort(workload.lengths, kind="stable")
    return [order[start : start + bucket] for start in range(0, count, bucket)]


def batches(
    workload: Workload, bucket: int | None, vocab_size: int, training: bool = False
) -> list[dict[str, np.ndarray]]:
    """Returns the workload as padded batches of `groups` with random ids.

    Returns:
        For every group `token_ids`, `segment_ids` int32 and `padding_mask` bool, all `[B, T]`; for
        training also `masked_positions`, `masked_ids` int32 and `masked_weights` float32 `[B, P]`,
        `next_sentence_labels` int32 `[B]`, and the scalars `weight_total` and `batch_total` of the
        whole workload. A loss divided by them adds up over the groups to that of one large batch.
    """
    sequences = [
        _sequence(index, length, vocab_size) for index, length in enumerate(workload.lengths)
    ]
    weight_total = sum(len(sequence["masked_positions"]) for sequence in sequences)
    result = []
    for group in groups(workload, bucket):
        members = [sequences[index] for index in group]
        longest = max(len(member["token_ids"]) for member in members)
        batch = {name: _padded(members, name, longest) for name in ENCODER_INPUTS}
        if training:
            batch |= {name: _padded(members, name, MAX_PREDICTIONS) for name in MASKED_INPUTS}
            batch["next_sentence_labels"] = (group % 2).astype(np.int32)
            batch["weight_total"] = np.float32(weight_total)
            batch["batch_total"] = np.float32(len(sequences))
        result.append(batch)
    return result


def comparable(outputs, workload: Workload, bucket: int | None) -> dict[str, np.ndarray]:
    """Returns the loss, or the outputs in the order of the workload.

    They are `sequence_output` at real tokens, `[R, H]`, and `pooled_output`, `[B, H]`, from those
    of the groups, `[B, T, H]` and `[B, H]` each.
    """
    if "loss" in outputs:
        return outputs
    divided = groups(workload, bucket)
    places = np.argsort(np.concatenate(divided))

    def in_order(name):
        rows = [row for index in range(len(divided)) for row in outputs[f"{index}/{name}"]]
        return [rows[place] for place in places]

    sequences = zip(in_order("sequence_output"), workload.lengths, strict=True)
    return {
        "sequence_output": np.concatenate([rows[:length] for rows, length in sequences]),
        "pooled_output": np.stack(in_order("pooled_output")),
    }


def encoder_flops(workload: Workload, config) -> float:
    """Returns the multiplications and additions of the encoder's matmuls on real tokens."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    feed_forward = 3 if config.get("gated_mlp") else 2  # matrices
    dense = 2 * workload.tokens * (4 * hidden * hidden + feed_forward * hidden * wide)
    attention = 2 * 2 * hidden * sum(length * length for length in workload.lengths)
    pooler = 2 * len(workload.lengths) * hidden * hidden
    return float(config["num_hidden_layers"] * (dense + attention) + pooler)


def training_flops(workload: Workload, config) -> float:
    """Returns the FLOPs of a step: three times those of the forward pass with the heads."""
    hidden = config["hidden_size"]
    masked = sum(masked_count(length) for length in workload.lengths)
    head = 2 * masked * hidden * (hidden + config["vocab_size"])
    return 3 * (encoder_flops(workload, config) + head)


def masked_count(length: int) -> int:
    """Returns the number of masked positions of a sequence."""
    # 15 % as in google-research/bert, but rounded up, so that a length of 128 has all 20 positions.
    return min(MAX_PREDICTIONS, max(1, -(-length * 3 // 20)))


def _sequence(index: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng([_SEED, index])
    first = min(_FIRST_ORDINARY_ID, vocab_size - 1)
    token_ids = generator.integers(first, vocab_size, length)
    positions = np.sort(generator.choice(length, masked_count(length), replace=False))
    return {
        "token_ids": token_ids.astype(np.int32),
        "segment_ids": (np.arange(length) >= length // 2).astype(np.int32),
        "padding_mask": np.ones(length, bool),
        "masked_positions": positions.astype(np.int32),
        "masked_ids": generator.integers(first, vocab_size, len(positions)).astype(np.int32),
        "masked_weights": np.ones(len(positions), np.float32),
    }


def _padded(members: Sequence[dict[str, np.ndarray]], name: str, length: int) -> np.ndarray:
    result = np.zeros([len(members), length], members[0][name].dtype)
    for place, member in enumerate(members):
        result[place, : len(member[name])] = member[name]
    return result
