"""Measures tokenization in megabytes of real text per second of processor time.

Processor time is compared, because some peers divide a batch among threads, and TensorFlow runs the
ops of several batches at the same time instead.
"""

import os

import numpy as np

from research.corpora.film_reviews import read_film_reviews

from . import limits
from .peers import OURS
from .report import Report, Table
from .timing import medians, ratio
from .turns import Turns

REVIEWS = os.path.join("film_reviews", "rotten_tomatoes_corpus_full.csv.bz2")
_ENGLISH_VOCABULARY = os.path.join("minilm", "vocab.txt")
_CHINESE = (os.path.join("chinese_text", "pos.txt"), os.path.join("chinese_text", "neg.txt"))
# Long texts are measured separately: nearly all of them have a character that is not ASCII.
_REVIEWS_A_DOCUMENT = 40
_CHINESE_VOCABULARY = os.path.join("chinese_vocab", "vocab.txt")
# The files of `research/fetch_materials.py` that are needed.
MATERIALS = (REVIEWS, _ENGLISH_VOCABULARY, *_CHINESE, _CHINESE_VOCABULARY)


def run(workers, materials: str, report: Report, most_texts: int):
    """Adds one table per corpus, of at most `most_texts` texts per language."""
    reviews = read_film_reviews(os.path.join(materials, REVIEWS))
    english = [text for text, *_ in reviews][:most_texts]
    starts = range(0, len(english), _REVIEWS_A_DOCUMENT)
    documents = [" ".join(english[start : start + _REVIEWS_A_DOCUMENT]) for start in starts]
    chinese = []
    for name in _CHINESE:
        with open(os.path.join(materials, name), encoding="utf-8") as file:
            chinese += [line.strip() for line in file if line.strip()]
    for title, texts, vocabulary in (
        ("English film reviews", english, _ENGLISH_VOCABULARY),
        (f"English documents of {_REVIEWS_A_DOCUMENT} reviews", documents, _ENGLISH_VOCABULARY),
        ("Chinese book reviews", chinese[:most_texts], _CHINESE_VOCABULARY),
    ):
        _compare(title, texts, os.path.join(materials, vocabulary), workers, report)


def _compare(title, texts, vocabulary, workers, report):
    size = sum(len(text.encode()) for text in texts)
    print(f"\ntokenizer, {title}: {len(texts)} texts, {size / 1e6:.2f} MB", flush=True)
    with Turns(f"tokenizer, {title}", report) as turns:
        arguments = {"texts": texts, "vocabulary": vocabulary}
        turns.add_all(workers, "tokenizer", 2, difference=_different_share, most=1.0, **arguments)
        note = limits.busy_note()
        seconds = turns.seconds(clock="process_time")
        rows = [
            {
                "peer": label,
                "MB/s": size / median / 1e6,
                "texts/s": len(texts) / median,
                "times ours": ratio(seconds[label], seconds[OURS]),
                "texts with other ids": turns.differences[label],
            }
            for label, median in medians(seconds).items()
        ]
        heading = f"Tokenizer, {title}, {size / 1e6:.2f} MB, per processor second; "
        heading += f"{report.options.rounds} rounds{note}"
        report.add(Table(heading, rows, "MB/s"))


def _different_share(expected, outputs) -> float:
    """Returns the share of the texts with other ids."""

    def rows(values):
        return np.split(values["ids"], values["row_splits"][1:-1])

    pairs = zip(rows(expected), rows(outputs), strict=True)
    return float(np.mean([not np.array_equal(ours, theirs) for ours, theirs in pairs]))
