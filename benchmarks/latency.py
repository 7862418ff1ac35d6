"""Measures the latency of a sentence encoder: one sentence at a time, from text to vector.

In 8-bit integers each peer's vector is compared with that of bert_tf in float32. Static scales come
from film reviews, as random tokens give the peers errors that they do not have in use.
"""

import json
import os
import random
import shutil

import numpy as np

from bert_tf.errors import UserError
from research.corpora.film_reviews import read_film_reviews

from . import limits, models
from .peers import OURS
from .report import Report, Table
from .timing import medians, ratio
from .tokenizer import REVIEWS
from .turns import LARGEST_ERRORS, Turns, relative_error

MODEL = "minilm"  # the material with MiniLM-L6: L = 6, H = 384
_CALIBRATION_TEXTS = 48
MATERIALS = (os.path.join(MODEL, "tokenizer.json"), REVIEWS)
_POOLING = "1_Pooling"
_VOCABULARY = 30522
# 20 tokens each, with [CLS] and [SEP]. Only the first is ASCII, for which bert_tf's tokenizer has a
# fast path.
SENTENCES = {
    "ASCII": (
        "The little house behind the old mill was painted bright yellow by my two brothers last "
        "summer."
    ),
    "accents": (
        "The little café behind the old château was painted bright yellow by my two brothers last "
        "summer."
    ),
}


def make_model(worker, directory: str, config: dict, materials: str) -> None:
    """Writes a sentence encoder of random weights with the tokenizer and pooling of `MODEL`."""
    models.make(worker, directory, config)
    source = os.path.join(materials, MODEL)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json"):
        shutil.copy(os.path.join(source, name), directory)
    os.mkdir(os.path.join(directory, _POOLING))
    with open(os.path.join(source, _POOLING, "config.json"), encoding="utf-8") as file:
        pooling = json.load(file)
    pooling["word_embedding_dimension"] = config["hidden_size"]
    with open(os.path.join(directory, _POOLING, "config.json"), "w", encoding="utf-8") as file:
        json.dump(pooling, file)


def require_vocabulary(config: dict) -> None:
    """Checks that a model has an embedding for every piece of the tokenizer."""
    if config["vocab_size"] < _VOCABULARY:
        raise UserError(
            f"--config must have a vocabulary of at least {_VOCABULARY}, the tokenizer's. "
            f"Received: {config['vocab_size']}"
        )


def run(workers, job: str, materials: str, report: Report):
    """Adds one table per sentence; `job` is "latency" or "latency_int8"."""
    is_int8 = job == "latency_int8"
    arguments = {}
    if is_int8:
        reviews = read_film_reviews(os.path.join(materials, REVIEWS))
        chosen = random.Random(0).sample(reviews, _CALIBRATION_TEXTS)
        arguments = {
            "calibration": tuple(text for text, *_ in chosen),
            "difference": relative_error,
            "most": LARGEST_ERRORS["int8"],
        }
    for title, text in SENTENCES.items():
        print(f"\n{job}, {title}: {text}", flush=True)
        expected = _float32_vector(workers[OURS], text) if is_int8 else None
        with Turns(f"{job}, {title}", report, expected) as turns:
            turns.add_all(workers, job, 20, text=text, **arguments)
            note = limits.busy_note()
            seconds = turns.seconds()
            fastest_first = medians(seconds)
            best = next(label for label in fastest_first if label.startswith(OURS))
            rows = [
                {
                    "peer": label,
                    "ms": 1e3 * median,
                    "times ours": ratio(seconds[label], seconds[best]),
                    **({"relative error": turns.differences[label]} if is_int8 else {}),
                }
                for label, median in fastest_first.items()
            ]
            dtype = "int8" if is_int8 else "float32"
            heading = f"One sentence, {title}, text to vector, {dtype}"
            report.add(Table(f"{heading}; {report.options.rounds} rounds{note}", rows, "ms"))


def _float32_vector(worker, text) -> dict[str, np.ndarray]:
    key = worker.make("latency", text=text, variant="graph")
    vector = worker.outputs(key)
    worker.drop(key)
    return vector
