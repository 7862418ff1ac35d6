"""Measures the latency of a sentence encoder: one sentence at a time, from text to vector."""

import json
import os
import shutil
import statistics

import numpy as np

from bert_tf.errors import UserError

from . import limits, models
from .contest import LARGEST_DIFFERENCE, Options
from .peers import OURS
from .report import Report, Table
from .timing import interleave, ratio
from .workers import PeerFailed

MODEL = "minilm"  # the material with MiniLM-L6: L = 6, H = 384
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


def model_directory(materials: str) -> str:
    """Returns the directory of the sentence encoder.

    Args:
        materials: The directory of tools/fetch_materials.py.

    Raises:
        UserError: If it does not have the encoder.
    """
    directory = os.path.join(materials, MODEL)
    if not os.path.isfile(os.path.join(directory, "tokenizer.json")):
        raise UserError(
            f"--materials_dir must have {MODEL}/tokenizer.json. Received: "
            f"--materials_dir={materials}. Run `python tools/fetch_materials.py` or "
            "`make materials`."
        )
    return directory


def make_model(worker, directory: str, config: dict, materials: str) -> None:
    """Writes a sentence encoder of random weights, with the tokenizer and the pooling of `MODEL`.

    Args:
        worker: The worker of bert_tf, which creates the encoder.
        directory: The directory to write to.
        config: The arguments of `BertConfig`.
        materials: The directory of tools/fetch_materials.py, with `MODEL`.
    """
    models.make(worker, directory, config)
    source = model_directory(materials)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "modules.json"):
        shutil.copy(os.path.join(source, name), directory)
    os.mkdir(os.path.join(directory, _POOLING))
    with open(os.path.join(source, _POOLING, "config.json"), encoding="utf-8") as file:
        pooling = json.load(file)
    pooling["word_embedding_dimension"] = config["hidden_size"]
    with open(os.path.join(directory, _POOLING, "config.json"), "w", encoding="utf-8") as file:
        json.dump(pooling, file)


def require_vocabulary(config: dict) -> None:
    """Checks that a model has an embedding for every piece of the tokenizer.

    Args:
        config: The arguments of `BertConfig`.

    Raises:
        UserError: If it has fewer.
    """
    if config["vocab_size"] < _VOCABULARY:
        raise UserError(
            f"--config must have a vocabulary of at least {_VOCABULARY}, the tokenizer's. "
            f"Received: {config['vocab_size']}"
        )


def run(workers, options: Options, report: Report):
    """Adds one table per sentence. The vectors are compared with those of bert_tf first."""
    for title, text in SENTENCES.items():
        _contest(title, text, workers, options, report)


def _contest(title, text, workers, options, report):
    print(f"\nlatency, {title}: {text}", flush=True)
    turns, keys, expected = {}, [], None
    for name in sorted(workers, key=lambda name: name != OURS):
        worker = workers[name]
        try:
            for variant in worker.variants("latency"):
                label = name if variant == "default" else f"{name}, {variant}"
                key = worker.make("latency", text=text, variant=variant)
                vector = worker.outputs(key)["vector"]
                expected = vector if expected is None else expected
                difference = float(np.max(np.abs(vector - expected)))
                if not difference <= LARGEST_DIFFERENCE:
                    worker.drop(key)
                    report.problem(f"latency, {title}, {label}: off by {difference:.2g}")
                    continue
                keys.append((worker, key))
                worker.warm_up(key, 20)
                turns[label] = _turn(worker, key, options)
        except PeerFailed as failure:
            report.problem(f"latency, {title}: {failure}")
    ours = [label for label in turns if label.startswith(OURS)]
    if not ours:
        return
    note = limits.busy_note()
    try:
        seconds = interleave(turns, options.rounds, options.progress)
    except PeerFailed as failure:
        report.problem(f"latency, {title}: {failure}")
        return
    for worker, key in keys:
        worker.drop(key)
    medians = {label: statistics.median(seconds[label]) for label in turns}
    best = min(ours, key=medians.get)
    rows = [
        {
            "peer": label,
            "ms": 1e3 * medians[label],
            "times ours": ratio(seconds[label], seconds[best]),
        }
        for label in sorted(medians, key=medians.get)
    ]
    report.add(
        Table(f"One sentence, {title}, text to vector; {options.rounds} rounds{note}", rows, "ms")
    )


def _turn(worker, key, options):
    return lambda: worker.turn(key, options.turn_seconds)
