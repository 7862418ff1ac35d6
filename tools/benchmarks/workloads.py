"""The inputs every peer gets: token ids, their arrangement in batches, and what they cost.

Glossary as in `bert_tf`: B batch, T length, P masked positions, R real tokens.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

# Sequence lengths of real text in a service: many short, few long. 64 film reviews have a mean of
# 29 tokens and a longest of 97.
RAGGED_SEQUENCES = 64
RAGGED_MEAN = 30
RAGGED_SHORTEST, RAGGED_LONGEST = 8, 128
RAGGED_SIGMA = 0.5  # of the logarithm

MAX_PREDICTIONS = 20  # google-research/bert run_pretraining.py, max_predictions_per_seq

# How a peer that pads may cut the work: sequences sorted by length, so many to a batch.
BUCKETS = (4, 8, 16, None)  # None: all in one batch

_SEED = 20260101
_FIRST_ORDINARY_ID = 5  # below are [PAD], [UNK], [CLS], [SEP], [MASK]


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sequences to be encoded or trained on.

    Attributes:
        name: For the tables.
        lengths: Of the sequences, in tokens.
        is_ragged: Whether there is padding to avoid.
    """

    name: str
    lengths: tuple[int, ...]
    is_ragged: bool

    @classmethod
    def dense(cls, batch: int, length: int) -> "Workload":
        return cls(f"{batch}x{length}", (length,) * batch, is_ragged=False)

    @classmethod
    def ragged(cls, count: int = RAGGED_SEQUENCES, longest: int = RAGGED_LONGEST) -> "Workload":
        """Lognormal lengths, always the same for the same arguments."""
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
    """Which sequences go together: sorted by length and cut into `bucket`s; None: all at once.

    All at once keeps the given order, as a batch drawn from a shuffled data set has it.
    """
    count = len(workload.lengths)
    if bucket is None or bucket >= count:
        return [np.arange(count)]
    order = np.argsort(workload.lengths, kind="stable")
    return [order[start : start + bucket] for start in range(0, count, bucket)]


def batches(
    workload: Workload, bucket: int | None, vocab_size: int, training: bool = False
) -> list[dict[str, np.ndarray]]:
    """The workload as padded batches.

    Args:
        workload: What to encode.
        bucket: As in `groups`.
        vocab_size: Ids are drawn below it.
        training: Whether to add masked positions and labels.

    Returns:
        For every group `token_ids`, `segment_ids` int32 and `padding_mask` bool, all `[B, T]`; for
        training also `masked_positions`, `masked_ids` int32 and `masked_weights` float32 `[B, P]`,
        `next_sentence_labels` int32 `[B]`, and the scalars `weight_total`, `batch_total` of the
        whole workload: with them the losses of the groups add up to the loss of one big batch.
    """
    sequences = [
        _sequence(index, length, vocab_size) for index, length in enumerate(workload.lengths)
    ]
    weight_total = sum(len(sequence["masked_positions"]) for sequence in sequences)
    result = []
    for group in groups(workload, bucket):
        members = [sequences[index] for index in group]
        longest = max(len(member["token_ids"]) for member in members)
        batch = {
            "token_ids": _padded([member["token_ids"] for member in members], longest),
            "segment_ids": _padded([member["segment_ids"] for member in members], longest),
            "padding_mask": _padded(
                [np.ones_like(member["token_ids"]) for member in members], longest
            ).astype(bool),
        }
        if training:
            for name in ("masked_positions", "masked_ids"):
                batch[name] = _padded([member[name] for member in members], MAX_PREDICTIONS)
            batch["masked_weights"] = _padded(
                [np.ones_like(member["masked_ids"]) for member in members], MAX_PREDICTIONS
            ).astype(np.float32)
            batch["next_sentence_labels"] = (group % 2).astype(np.int32)
            batch["weight_total"] = np.float32(weight_total)
            batch["batch_total"] = np.float32(len(sequences))
        result.append(batch)
    return result


def real_rows(values: Sequence[np.ndarray], workload: Workload, bucket: int | None) -> np.ndarray:
    """The outputs at real tokens, sequence after sequence, whatever the arrangement was.

    Args:
        values: `[B, T, H]` of every group.

    Returns:
        `[R, H]`.
    """
    rows = [None] * len(workload.lengths)
    for group, value in zip(groups(workload, bucket), values, strict=True):
        for place, index in enumerate(group):
            rows[index] = value[place, : workload.lengths[index]]
    return np.concatenate(rows)


def per_sequence(values: Sequence[np.ndarray], workload: Workload, bucket: int | None):
    """Outputs of one row a sequence, in the workload's order: `[B, H]` of every group -> one."""
    order = np.concatenate(groups(workload, bucket))
    result = np.concatenate(list(values))
    return result[np.argsort(order)]


def encoder_flops(workload: Workload, config) -> float:
    """Multiplications and additions of the encoder on real tokens only (no padding, no GELU)."""
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    dense = 2 * workload.tokens * (4 * hidden * hidden + 2 * hidden * wide)
    attention = 2 * 2 * hidden * sum(length * length for length in workload.lengths)
    pooler = 2 * len(workload.lengths) * hidden * hidden
    return float(config["num_hidden_layers"] * (dense + attention) + pooler)


def training_flops(workload: Workload, config) -> float:
    """A step's: the forward with the heads on masked rows, and twice that for the gradients."""
    hidden = config["hidden_size"]
    masked = sum(_masked_count(length) for length in workload.lengths)
    head = 2 * masked * hidden * (hidden + config["vocab_size"])
    return 3 * (encoder_flops(workload, config) + head)


def _masked_count(length: int) -> int:
    # 15 % as google-research/bert, but rounded up: a length of 128 gets all 20 places.
    return min(MAX_PREDICTIONS, max(1, -(-length * 3 // 20)))


def _sequence(index: int, length: int, vocab_size: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng([_SEED, index])
    first = min(_FIRST_ORDINARY_ID, vocab_size - 1)
    token_ids = generator.integers(first, vocab_size, length)
    positions = np.sort(generator.choice(length, _masked_count(length), replace=False))
    return {
        "token_ids": token_ids.astype(np.int32),
        "segment_ids": (np.arange(length) >= length // 2).astype(np.int32),
        "masked_positions": positions.astype(np.int32),
        "masked_ids": generator.integers(first, vocab_size, len(positions)).astype(np.int32),
    }


def _padded(rows: Sequence[np.ndarray], length: int) -> np.ndarray:
    result = np.zeros([len(rows), length], np.int32)
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result
