"""Measures tokenization in megabytes of real text per second, English and Chinese."""

import os
import statistics

import numpy as np
from corpora.film_reviews import read_film_reviews

from bert_tf.errors import UserError

from . import limits
from .contest import Options
from .peers import OURS
from .report import Report, Table
from .timing import interleave, ratio
from .workers import PeerFailed

# The files that `tools/fetch_materials.py` writes.
_REVIEWS = os.path.join("film_reviews", "rotten_tomatoes_corpus_full.csv.bz2")
_ENGLISH_VOCABULARY = os.path.join("minilm", "vocab.txt")
_CHINESE = (os.path.join("chinese_text", "pos.txt"), os.path.join("chinese_text", "neg.txt"))
# Long texts are measured separately: nearly all of them have a character that is not ASCII.
_REVIEWS_A_DOCUMENT = 40
_CHINESE_VOCABULARY = os.path.join("chinese_vocab", "vocab.txt")


def require_materials(directory: str) -> None:
    """Checks that the texts exist, before any work.

    Args:
        directory: The directory of tools/fetch_materials.py.

    Raises:
        UserError: If one is missing.
    """
    wanted = (_REVIEWS, _ENGLISH_VOCABULARY, *_CHINESE, _CHINESE_VOCABULARY)
    missing = [name for name in wanted if not os.path.isfile(os.path.join(directory, name))]
    if missing:
        raise UserError(
            f"--materials_dir must have {', '.join(missing)}. Received: "
            f"--materials_dir={directory}. Run `python tools/fetch_materials.py` or "
            "`make materials`."
        )


def run(workers, materials: str, options: Options, report: Report, most_texts: int):
    """Adds one table per corpus, with the share of texts that get the same ids as from bert_tf.

    Args:
        workers: The workers by name.
        materials: The directory of tools/fetch_materials.py.
        options: Rounds and length of the measurements.
        report: The report to add the tables and the problems to.
        most_texts: Maximum number of texts per language.
    """
    english, chinese = _english(materials)[:most_texts], _chinese(materials)[:most_texts]
    corpora = {
        "English film reviews": (english, _ENGLISH_VOCABULARY),
        f"English documents of {_REVIEWS_A_DOCUMENT} reviews": (
            _documents(english),
            _ENGLISH_VOCABULARY,
        ),
        "Chinese book reviews": (chinese, _CHINESE_VOCABULARY),
    }
    for title, (texts, vocabulary) in corpora.items():
        _contest(title, texts, os.path.join(materials, vocabulary), workers, options, report)


def _english(materials) -> list[str]:
    return [text for text, *_ in read_film_reviews(os.path.join(materials, _REVIEWS))]


def _documents(texts) -> list[str]:
    starts = range(0, len(texts), _REVIEWS_A_DOCUMENT)
    return [" ".join(texts[start : start + _REVIEWS_A_DOCUMENT]) for start in starts]


def _chinese(materials) -> list[str]:
    texts = []
    for name in _CHINESE:
        with open(os.path.join(materials, name), encoding="utf-8") as file:
            texts += [line.strip() for line in file if line.strip()]
    return texts


def _contest(title, texts, vocabulary, workers, options, report):
    size = sum(len(text.encode()) for text in texts)
    print(f"\ntokenizer, {title}: {len(texts)} texts, {size / 1e6:.2f} MB", flush=True)
    turns, same, keys, expected = {}, {}, [], None
    for name in sorted(workers, key=lambda name: name != OURS):
        try:
            worker = workers[name]
            for variant in worker.variants("tokenizer"):
                label = name if variant == "default" else f"{name}, {variant}"
                key = worker.make("tokenizer", texts=texts, vocabulary=vocabulary, variant=variant)
                keys.append((worker, key))
                outputs = worker.outputs(key)
                expected = expected or outputs  # of bert_tf, equal to google-research/bert's
                same[label] = _equal_share(expected, outputs)
                worker.warm_up(key, 2)
                turns[label] = _turn(worker, key, options)
        except PeerFailed as failure:
            report.problem(f"tokenizer, {title}: {failure}")
    if OURS not in turns:
        return
    note = limits.busy_note()
    try:
        seconds = interleave(turns, options.rounds, options.progress)
    except PeerFailed as failure:
        report.problem(f"tokenizer, {title}: {failure}")
        return
    for worker, key in keys:
        worker.drop(key)
    rows = [
        {
            "peer": label,
            "MB/s": size / statistics.median(seconds[label]) / 1e6,
            "texts/s": len(texts) / statistics.median(seconds[label]),
            "times ours": ratio(seconds[label], seconds[OURS]),
            "texts with the same ids": same[label],
        }
        for label in sorted(turns, key=lambda label: statistics.median(seconds[label]))
    ]
    report.add(
        Table(
            f"Tokenizer, {title}, {size / 1e6:.2f} MB; {options.rounds} rounds{note}", rows, "MB/s"
        )
    )


def _turn(worker, key, options):
    return lambda: worker.turn(key, options.turn_seconds)


def _equal_share(expected, outputs) -> float:
    """Returns the share of the texts with the same ids."""

    def rows(values):
        return np.split(values["ids"], values["row_splits"][1:-1])

    pairs = zip(rows(expected), rows(outputs), strict=True)
    return float(np.mean([np.array_equal(ours, theirs) for ours, theirs in pairs]))
