"""Formats the results as Markdown tables, as JSON and as bar charts."""

import dataclasses
import os
import platform
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.base.pictures import save_picture
from bert_tf.tools.common import result_files

from .timing import Spread
from .workloads import BUCKETS

_TITLE_WIDTH = 80  # characters per line of a chart's title


@dataclasses.dataclass(frozen=True)
class Options:
    """How long to measure; the flags of `python -m benchmarks` say more."""

    rounds: int
    turn_seconds: float
    search_calls: int
    buckets: tuple[int | None, ...] = BUCKETS  # None: a single batch
    variants: Sequence[str] = ()  # of bert_tf; none: all of the job
    progress: Callable = iter  # wraps the sequence of measurements, such as tqdm


@dataclasses.dataclass
class Table:
    """One comparison: rows of plain values and `Spread`s, and the key of the bar chart's values."""

    title: str
    rows: list[dict[str, Any]]
    bars: str | None = None


@dataclasses.dataclass
class Report:
    """All tables of a run, the problems that make them invalid, and facts about the run."""

    options: Options
    tables: list[Table] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, table: Table) -> None:
        self.tables.append(table)
        print("\n" + format_table(table))

    def problem(self, text: str) -> None:
        self.problems.append(text)
        print(f"  INVALID: {text}")


def machine() -> dict[str, Any]:
    """Returns the processor, its relevant instruction sets, and the system."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        pairs = (line.partition(":") for line in file)
        fields = {key.strip(): value.strip() for key, _, value in pairs}
    flags = fields.get("flags", "").split()
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")
    return {
        "processor": fields.get("model name", platform.processor()),
        "cores": os.cpu_count(),
        "instructions": [flag for flag in wanted if flag in flags],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def print_machine(facts: dict[str, Any]) -> None:
    """Prints what `machine` found, and the number of threads."""
    instructions = ", ".join(facts["instructions"])
    print(
        f"{facts['processor']}, {facts['cores']} cores ({instructions}); {facts['threads']} "
        f"threads; {facts['system']}",
        flush=True,
    )


def format_table(table: Table) -> str:
    """Formats a table as GitHub's Markdown, with aligned columns."""
    if not table.rows:
        return f"{table.title}\n(no rows)"
    columns = list(dict.fromkeys(key for row in table.rows for key in row))
    cells = [columns] + [[format_value(row.get(key)) for key in columns] for row in table.rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    is_text = [any(isinstance(row.get(key), str) for row in table.rows) for key in columns]

    def line(values):
        padded = [
            value.ljust(width) if text else value.rjust(width)
            for value, width, text in zip(values, widths, is_text)
        ]
        return "| " + " | ".join(padded) + " |"

    rule = "|".join(
        "-" * (width + 1) + ("-" if text else ":") for width, text in zip(widths, is_text)
    )
    return "\n".join([table.title, "", line(cells[0]), f"|{rule}|", *map(line, cells[1:])])


def format_value(value: Any) -> str:
    """Formats a number with three significant digits, and a spread as "median (min–max)"."""
    if value is None:
        return "–"
    if isinstance(value, Spread):
        return (
            f"{format_value(value.median)} "
            f"({format_value(value.minimum)}–{format_value(value.maximum)})"
        )
    if isinstance(value, float):
        if value and abs(value) < 1e-3:
            return f"{value:.0e}"
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 1 else 3
        return f"{value:,.{digits}f}"
    return str(value)


def write_json(report: Report, path: str) -> None:
    """Writes all results of the run to a JSON file, without rounding."""
    content = {
        "facts": report.facts,
        "problems": report.problems,
        "tables": [{"title": table.title, "rows": table.rows} for table in report.tables],
    }
    # A `Spread` becomes an object of its three values.
    result_files.write_json(path, content, indent=2, ensure_ascii=False, default=dataclasses.asdict)


def write_plot(report: Report, path: str) -> None:
    """Writes a bar chart with one panel per table; bert_tf has another colour than the peers."""
    from matplotlib.figure import Figure

    tables = [table for table in report.tables if table.bars and table.rows]
    if not tables:
        return
    heights = [0.6 + 0.32 * len(table.rows) for table in tables]
    figure = Figure(figsize=(9, sum(heights) + 0.5 * len(tables)))
    panels = figure.subplots(len(tables), squeeze=False, height_ratios=heights)
    for panel, table in zip(panels[:, 0], tables):
        rows = [row for row in table.rows if row.get(table.bars) is not None]
        values = [row[table.bars] for row in rows]
        values = [value.median if isinstance(value, Spread) else value for value in values]
        names = [", ".join(text for text in row.values() if isinstance(text, str)) for row in rows]
        colours = ["#1f6feb" if name.startswith("bert_tf") else "#b8bfc9" for name in names]
        bars = panel.barh(range(len(rows)), values, color=colours)
        panel.bar_label(bars, labels=[format_value(float(value)) for value in values], padding=3)
        panel.set_yticks(range(len(rows)), names)
        panel.invert_yaxis()
        panel.margins(x=0.12)
        panel.set_title(textwrap.fill(table.title, _TITLE_WIDTH), loc="left", fontsize=9)
        panel.set_xlabel(table.bars)
        panel.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    save_picture(figure, path)
