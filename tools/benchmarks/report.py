"""Formats the results as Markdown tables, as JSON and as bar charts."""

import dataclasses
import json
import os
import platform
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from bert_tf.errors import UserError
from bert_tf.files import atomic_path

from .timing import Spread

_FORMATS = ("png", "svg", "pdf")

_TITLE_WIDTH = 90  # characters per line of a chart's title


@dataclasses.dataclass
class Table:
    """One comparison.

    Attributes:
        title: What was compared.
        rows: Dictionaries of plain values and `Spread`s.
        bars: The key of the values in the bar chart; None for no chart.
    """

    title: str
    rows: list[dict[str, Any]]
    bars: str | None = None


@dataclasses.dataclass
class Report:
    """All tables of a run, the problems that make them invalid, and facts about the run."""

    tables: list[Table] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    facts: dict[str, Any] = dataclasses.field(default_factory=dict)

    def add(self, table: Table, report: Callable[[str], None] = print) -> None:
        self.tables.append(table)
        report("\n" + format_table(table))

    def problem(self, text: str, report: Callable[[str], None] = print) -> None:
        self.problems.append(text)
        report(f"  INVALID: {text}")


def machine() -> dict[str, Any]:
    """Returns the processor, its relevant instruction sets, and the system."""
    model, flags = platform.processor(), []
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name":
                    model = value.strip()
                elif key.strip() == "flags":
                    flags = value.split()
    except OSError:
        pass  # not Linux: only the name is known
    wanted = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "instructions": [flag for flag in wanted if flag in flags],
        "system": platform.platform(),
        "python": platform.python_version(),
    }


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

    rule = (
        "|"
        + "|".join(
            "-" * (width + 2) if text else "-" * (width + 1) + ":"
            for width, text in zip(widths, is_text)
        )
        + "|"
    )
    return "\n".join([table.title, "", line(cells[0]), rule, *map(line, cells[1:])])


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
        "tables": [
            {
                "title": table.title,
                "rows": [
                    {
                        key: dataclasses.asdict(value) if isinstance(value, Spread) else value
                        for key, value in row.items()
                    }
                    for row in table.rows
                ],
            }
            for table in report.tables
        ],
    }
    with atomic_path(path) as new:
        with open(new, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2, ensure_ascii=False)
            file.write("\n")


def require_plotting(path: str) -> None:
    """Checks that a chart can be written, before any work.

    Args:
        path: The file to write.

    Raises:
        UserError: If matplotlib is missing or does not support the format.
    """
    if _format(path) not in _FORMATS:
        raise UserError(f"--plot must be a .png, .svg or .pdf file. Received: --plot={path}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(
            "matplotlib must be installed for --plot. Received: no such package. "
            "pip install matplotlib"
        ) from None


def write_plot(report: Report, path: str) -> None:
    """Writes a bar chart with one panel per table; bert_tf has another colour than the peers."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tables = [table for table in report.tables if table.bars and table.rows]
    if not tables:
        return
    heights = [0.6 + 0.32 * len(table.rows) for table in tables]
    figure, panels = pyplot.subplots(
        len(tables),
        squeeze=False,
        figsize=(9, sum(heights) + 0.5 * len(tables)),
        height_ratios=heights,
    )
    for panel, table in zip(panels[:, 0], tables):
        rows = [row for row in table.rows if row.get(table.bars) is not None]
        values = [_middle(row[table.bars]) for row in rows]
        names = [_label(row) for row in rows]
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
    with atomic_path(path) as new:
        figure.savefig(new, format=_format(path), dpi=150)
    pyplot.close(figure)


def _format(path):
    return os.path.splitext(path)[1][1:]


def _middle(value: float | Spread) -> float:
    return value.median if isinstance(value, Spread) else value


def _label(row: dict[str, Any]) -> str:
    texts: Sequence[str] = [value for value in row.values() if isinstance(value, str)]
    return ", ".join(texts)
