"""Readers of the corpora that the demo, the studies in docs/ and some tests use."""

from collections.abc import Sequence

SPLIT_SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}


def split_in_order(rows: Sequence) -> dict[str, Sequence]:
    """Splits rows into consecutive parts of `SPLIT_SHARES`."""
    splits, start = {}, 0.0
    for split, share in SPLIT_SHARES.items():
        splits[split] = rows[round(start * len(rows)) : round((start + share) * len(rows))]
        start += share
    return splits
