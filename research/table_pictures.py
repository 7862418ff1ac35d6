"""Draws the tables of Markdown documents: a panel per column of numbers, a point per row.

A cell is a number, `0.823 ± 0.009`, or `0.332 (0.294–0.369)`; a picture shows what follows the
number as a line through the point. A cell without a number has no point. A text column's empty
cell repeats the cell above.
"""

import dataclasses
import math
import re
import textwrap
from collections.abc import Sequence

from bert_tf.base.pictures import save_picture

_NUMBER = r"([+-]?\d[\d,]*(?:\.\d+)?)"
_CELL = re.compile(rf"{_NUMBER}(?: ± {_NUMBER}| \({_NUMBER}(?:–| to ){_NUMBER}\))?$")
_TITLE_WIDTH = 22  # characters of a line
_PANEL_WIDTH = 1.9  # inches
_LARGE = 1e5  # is written as 100k


@dataclasses.dataclass(frozen=True)
class Interval:
    """A number of a table and the range that the cell gives with it; NaN if there is no number."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Table:
    """The rows of a table by their names, and the numbers of each column.

    Attributes:
        names: The text of each row.
        columns: For each column of numbers its title and its cells, one per row.
    """

    names: list[str]
    columns: dict[str, list[Interval]]


def parse_cell(text: str) -> Interval:
    """Returns the number and the range of a cell."""
    found = _CELL.match(text)
    if found is None:
        return Interval(math.nan, math.nan, math.nan)
    value, deviation, low, high = (
        None if part is None else float(part.replace(",", "")) for part in found.groups()
    )
    if deviation is not None:
        low, high = value - deviation, value + deviation
    return Interval(value, value if low is None else low, value if high is None else high)


def parse_table(lines: Sequence[str]) -> Table:
    """Returns the table of lines that begin with `|`; numbers are in the columns `---:`."""
    header, alignment, *rows = ([part.strip() for part in line.split("|")[1:-1]] for line in lines)
    is_number = [mark.endswith(":") for mark in alignment]
    names, above = [], [""] * len(header)
    for row in rows:
        texts = [text for text, number in zip(row, is_number) if not number]
        above = [text or before for text, before in zip(texts, above)]
        names.append(", ".join(above).replace("`", ""))
    columns = {
        title: [parse_cell(row[place]) for row in rows]
        for place, title in enumerate(header)
        if is_number[place]
    }
    return Table(names, columns)


def draw_table(table: Table, path: str, **options) -> None:
    """Draws a table into a .png, .svg or .pdf file; `options` as in `Figure.savefig`."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    columns = {
        title: cells
        for title, cells in table.columns.items()
        if not all(math.isnan(cell.value) for cell in cells)
    }
    names = max(map(len, table.names))
    size = (0.07 * names + _PANEL_WIDTH * len(columns), 0.27 * len(table.names) + 1.1)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for panel, (title, cells) in zip(panels, columns.items()):
        for row, cell in enumerate(cells):
            panel.plot([cell.low, cell.high], [row, row], color="#1f6feb", linewidth=2, alpha=0.5)
            panel.plot(cell.value, row, "o", color="#1f6feb", markersize=5)
        panel.set_title(textwrap.fill(title, _TITLE_WIDTH), fontsize=9)
        panel.grid(alpha=0.3)
        panel.tick_params(labelsize=8)
        panel.locator_params(axis="x", nbins=4)
        panel.margins(x=0.12)
        if any(cell.low < 0 for cell in cells):
            panel.axvline(0, color="grey", linewidth=0.8)
        if any(cell.value >= _LARGE for cell in cells):
            panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_yticks(range(len(table.names)), table.names)
    panels[0].set_ylim(len(table.names) - 0.5, -0.5)
    save_picture(figure, path, dpi=110, **options)
