"""Measures exact search: the ten best of many vectors, compared with NumPy's full product."""

from . import limits
from .report import Report, Table
from .timing import medians, ratio
from .turns import Turns
from .workers import Worker

ROWS, QUERIES, DIM, BEST = 200_000, 100, 384, 10
TOP_K, NUMPY = "top_k", "NumPy, full product"
VARIANTS = (TOP_K, NUMPY, "top_k, one query", "NumPy, one query", "int8", "binary")


def run(worker: Worker, report: Report) -> None:
    """Adds a table. Queries are searched together, and the vectors have length 1."""
    print(f"\nsearch: {QUERIES} queries, {ROWS} vectors of {DIM}", flush=True)
    with Turns("search", report) as turns:
        sizes = {"rows": ROWS, "queries": QUERIES, "dim": DIM, "k": BEST}
        for variant in VARIANTS:
            turns.add(variant, worker, "search", 2, difference=None, variant=variant, **sizes)
        note = limits.busy_note()
        seconds = turns.seconds()
        rows = [
            {
                "search": label,
                "ms": 1e3 * median,
                "times NumPy": ratio(
                    seconds[label],
                    seconds["NumPy, one query" if label.endswith("one query") else NUMPY],
                ),
            }
            for label, median in medians(seconds).items()
        ]
        heading = f"{BEST} best of {ROWS} vectors of {DIM} numbers for {QUERIES} queries"
        report.add(Table(f"{heading}; {report.options.rounds} rounds{note}", rows, "ms"))
