"""Measures a sentence encoder on many real sentences: texts to vectors.

The sentences are English film reviews, questions and short messages. Each round encodes the next
part of them, the same one for every peer. In 8-bit integers the vectors are compared with those of
bert_tf in float32, and the peers are timed in both dtypes in the same rounds.
"""

import os
import random

import numpy as np

from research.corpora import film_reviews, labelled_corpora

from . import limits
from .latency import MODEL
from .peers import OURS
from .report import Report, Table
from .timing import medians, ratio
from .tokenizer import REVIEWS
from .turns import LARGEST_ERRORS, Turns, relative_error

_FOLDER = "sms_and_questions"
_QUESTIONS = os.path.join(_FOLDER, "question_labels.txt")
_MESSAGES = os.path.join(_FOLDER, "sms-spam.csv")
MATERIALS = (os.path.join(MODEL, "tokenizer.json"), REVIEWS, _QUESTIONS, _MESSAGES)
NUM_TEXTS = 20_000
_CALIBRATION_TEXTS = 48


def read_sentences(materials: str) -> list[str]:
    """Returns `NUM_TEXTS` different texts in random order, and some more for calibration."""
    texts = [text for text, *_ in film_reviews.read_film_reviews(os.path.join(materials, REVIEWS))]
    texts += [text for text, _ in labelled_corpora.read_questions(f"{materials}/{_QUESTIONS}")]
    texts += [text for text, _ in labelled_corpora.read_sms_spam(f"{materials}/{_MESSAGES}")]
    texts = sorted(set(texts))
    random.Random(0).shuffle(texts)
    return texts[: NUM_TEXTS + _CALIBRATION_TEXTS]


def run(workers, job: str, materials: str, report: Report):
    """Adds a table per dtype; `job` is "encode" or "encode_int8". All rounds encode all texts."""
    texts = read_sentences(materials)
    calibration, texts = texts[:_CALIBRATION_TEXTS], texts[_CALIBRATION_TEXTS:]
    slices = [part.tolist() for part in np.array_split(texts, report.options.rounds)]
    print(f"\n{job}: {len(texts)} texts, {len(slices[0])} in a round", flush=True)
    with Turns(job, report) as turns:
        turns.add_all(workers, "encode", 1, slices=slices)
        labels = {"float32": [*turns.differences]}
        if job == "encode_int8":
            most = {"difference": relative_error, "most": LARGEST_ERRORS["int8"]}
            turns.add_all(workers, job, 1, slices=slices, calibration=tuple(calibration), **most)
            labels["int8"] = [one for one in turns.differences if one not in labels["float32"]]
        note = limits.busy_note()
        seconds = turns.seconds()
        for dtype, of_dtype in labels.items():
            fastest_first = [one for one in medians(seconds) if one in of_dtype]
            best = next((label for label in fastest_first if label.startswith(OURS)), None)
            if best is None:  # its vectors were wrong, which the report says
                continue
            rows = [
                {
                    "peer": label,
                    "texts/s": len(texts) / sum(seconds[label]),
                    "times ours": ratio(seconds[label], seconds[best]),
                    "difference": turns.differences[label],
                }
                for label in fastest_first
            ]
            heading = f"{len(texts)} sentences to vectors, {dtype}; {report.options.rounds} rounds"
            report.add(Table(f"{heading}{note}", rows, "texts/s"))
