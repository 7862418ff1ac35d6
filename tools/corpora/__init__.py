"""Readers of the corpora that the demo, the studies in docs/ and some tests use."""

import os
from collections.abc import Sequence

_CACHE = os.path.join(os.path.dirname(__file__), "..", "..", ".cache", "materials")
# Where tools/fetch_materials.py writes them, unless a flag names another directory.
MATERIALS_DIRECTORY = os.environ.get("BERT_TF_MATERIALS", os.path.abspath(_CACHE))

SPLIT_SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}


def split_in_order(rows: Sequence) -> dict[str, Sequence]:
    """Splits rows into consecutive parts of `SPLIT_SHARES`."""
    splits, start = {}, 0.0
    for split, share in SPLIT_SHARES.items():
        splits[split] = rows[round(start * len(rows)) : round((start + share) * len(rows))]
        start += share
    return splits
