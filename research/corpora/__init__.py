"""Readers of the corpora that the demo, the studies in docs/ and some tests use."""

import os
import random
from collections.abc import Sequence

_CACHE = os.path.join(os.path.dirname(__file__), "..", "..", ".cache", "materials")
# Where research/fetch_materials.py writes them, unless a flag names another directory.
MATERIALS_DIRECTORY = os.environ.get("BERT_TF_MATERIALS", os.path.abspath(_CACHE))

SPLIT_SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}


def split_in_order(rows: Sequence) -> dict[str, Sequence]:
    """Splits rows into consecutive parts of `SPLIT_SHARES`."""
    splits, start = {}, 0.0
    for split, share in SPLIT_SHARES.items():
        splits[split] = rows[round(start * len(rows)) : round((start + share) * len(rows))]
        start += share
    return splits


def split_by_group(examples: Sequence, groups: Sequence, seed: int = 0) -> dict[str, list]:
    """Splits examples to shuffled lists; those of a group are all in the same split.

    Args:
        examples: The examples.
        groups: The group of each example.
        seed: The seed of the split and of the order.
    """
    generator = random.Random(seed)
    names = sorted(set(groups))
    generator.shuffle(names)
    split_of = {name: split for split, part in split_in_order(names).items() for name in part}
    splits = {split: [] for split in SPLIT_SHARES}
    for example, group in zip(examples, groups, strict=True):
        splits[split_of[group]].append(example)
    for rows in splits.values():
        generator.shuffle(rows)
    return splits
