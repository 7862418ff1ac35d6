"""Measures calls of Python methods on text, in processor seconds: `encode`, `classify`, and so on.

Other libraries are called as their documentation shows, such as pipelines. The second table
is what comes before the steady state: the first answer of a process, imports and opening included,
the second call, whose text is longer, and what a further `fit` does in addition to its steps.
"""

import contextlib
import os
import random
from collections.abc import Callable

from research.corpora.film_reviews import read_film_reviews

from . import limits
from .latency import MODEL, SENTENCES
from .peers import OURS
from .report import Report, Table
from .timing import Spread, interleave, medians, ratio
from .tokenizer import REVIEWS
from .turns import Turns, largest_difference, ours_first
from .workers import PeerFailed

MATERIALS = (os.path.join(MODEL, "tokenizer.json"), REVIEWS)
_CONTEXT = (
    "Paris is the capital of France. It lies on the river Seine, and about two million people live "
    "there, many of them in small flats."
)
_QUESTION = "What is the capital of France?"
_WARM_CALLS = 5
_FIT_TEXTS, _FURTHER_STEPS = 32, 8


def run(workers, start: Callable, directory: str, materials: str, report: Report):
    """Adds a table of steady calls and one of first calls; `start` makes a worker of a name.

    `directory` has the encoder, and gets directories with the models of the other tasks.
    """
    workers[OURS].make("task_weights", directory=directory)
    reviews = read_film_reviews(os.path.join(materials, REVIEWS))
    texts = [text for text, *_ in random.Random(0).sample(reviews, 64)]
    cases = {
        "encode, 1 text": ("encode", [SENTENCES["ASCII"]]),
        "encode, 8 texts": ("encode", texts[:8]),
        "encode, 64 texts": ("encode", texts),
        "classify": ("classify", SENTENCES["ASCII"]),
        "tag": ("tag", SENTENCES["ASCII"]),
        "answer": ("answer", (_QUESTION, _CONTEXT)),
    }
    rows = []
    note = limits.busy_note()
    for label, (method, asked) in cases.items():
        # Pipelines join words to spans by other rules than `tag`.
        difference = None if method == "tag" else largest_difference
        arguments = {"directory": directory, "method": method, "texts": asked}
        with Turns(f"calls, {label}", report) as turns:
            turns.add_all(workers, "calls", _WARM_CALLS, difference=difference, **arguments)
            seconds = {clock: turns.seconds(clock) for clock in ("process_time", "perf_counter")}
            processor, wall = seconds.values()
            rows += [
                {
                    "call": label,
                    "peer": peer,
                    "processor ms": 1e3 * median,
                    "ours / it": ratio(processor[OURS], processor[peer]),
                    "wall ms": 1e3 * medians(wall)[peer],
                    "wall, ours / it": ratio(wall[OURS], wall[peer]),
                }
                for peer, median in medians(processor).items()
            ]
    rounds = report.options.rounds
    report.add(Table(f"Steady calls; {rounds} rounds{note}", rows, "processor ms"))
    _first_calls(ours_first(workers), start, directory, report)


def _first_calls(names, start, directory, report):
    found = {name: {} for name in names}

    def measure(name):
        with contextlib.closing(start(name, directory)) as worker:
            arguments = {"directory": directory, "method": "classify", "variant": "default"}
            first = worker.make("calls", texts="A quiet film.", **arguments)
            worker.time(first, 1)
            seconds = {"first answer, s": worker.ask("processor_seconds")}
            second = worker.make("calls", texts=SENTENCES["ASCII"], **arguments)
            seconds["second call, ms"] = 1e3 * worker.time(second, 1, "process_time")[0]
            if name == OURS:
                options = {"directory": directory, "batch_size": _FIT_TEXTS}
                one, many = (
                    worker.make("fit", texts=["A quiet film."] * _FIT_TEXTS * steps, **options)
                    for steps in (1, 1 + _FURTHER_STEPS)
                )
                worker.time(one, 1)
                second = worker.time(one, 1, "process_time")[0]
                step = (worker.time(many, 1, "process_time")[0] - second) / _FURTHER_STEPS
                seconds["second fit without its step, s"] = second - step
        for key, value in seconds.items():
            found[name].setdefault(key, []).append(value)
        return seconds["first answer, s"]

    try:
        answers = interleave(
            {name: lambda name=name: measure(name) for name in names},
            report.options.rounds,
            report.options.progress,
        )
    except PeerFailed as failure:
        report.problem(f"calls, first answer: {failure}")
        return
    rows = [
        {
            "peer": name,
            **{key: Spread.of(values) for key, values in found[name].items()},
            "first answer, ours / it": ratio(answers[OURS], answers[name]),
        }
        for name in names
    ]
    title = f"First calls in processor time, `classify`; {report.options.rounds} processes each"
    report.add(Table(title, rows, "first answer, s"))
