"""The page that shows inspections: one HTML file that needs nothing else, or its live form.

The page loads nothing: its style, script and data are in it. A Content-Security-Policy allows its
own script, by its hash, and no other; what the data hold is only ever shown as text.
"""

import dataclasses
import html
import importlib.resources
import json
import os
from collections.abc import Sequence
from typing import Any

from bert_tf.base.files import atomic_path
from bert_tf.errors import UserError
from bert_tf.inspection.inspection import Inspection
from bert_tf.inspection.page_data import page_data
from bert_tf.server import page_policy

MAX_MEGABYTES = 64.0
_SCRIPTS = ("data.js", "drawing.js", "panels.js", "main.js")
# What could end the element that holds the data, or a line of JavaScript. The rest is ASCII.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&"}
_HEIGHT = 900  # pixels of the frame in a notebook


@dataclasses.dataclass(frozen=True)
class InspectionPage:
    """The page. A notebook shows it in a frame that can reach neither the notebook nor a network.

    Attributes:
        html: The page.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> page = bert_tf.inspection.to_html(bert_tf.inspection.inspect_text(model, "a good film"))
        >>> page.html.startswith("<!DOCTYPE html>")
        True
    """

    html: str

    def __str__(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return f"InspectionPage({len(self.html):,} characters)"

    def _repr_html_(self) -> str:
        source = html.escape(self.html)
        return (
            f'<iframe title="Inspection" sandbox="allow-scripts" width="100%" height="{_HEIGHT}" '
            f'style="border:0" srcdoc="{source}"></iframe>'
        )


def to_html(
    inspections: Inspection | Sequence[Inspection],
    path: str | os.PathLike | None = None,
    *,
    title: str = "bert_tf: inspection",
    max_megabytes: float = MAX_MEGABYTES,
) -> InspectionPage:
    """Makes one HTML file of an inspection, or of two side by side.

    Args:
        inspections: What `inspect_text` returned, or a list of at most two: two texts or two
            models.
        path: The file to write, atomically; None writes none.
        title: The title of the page.
        max_megabytes: The maximum size of the page in megabytes. A text of 512 tokens and a model
            of 12 layers with 12 heads have 38 million weights, which are one byte each before they
            are compressed.

    Returns:
        The page: its `html`, which a notebook shows if it is the last value of a cell.

    Raises:
        UserError: If there are no inspections or more than two, or the page would be too large.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> both = [bert_tf.inspection.inspect_text(model, text) for text in ("good", "bad")]
        >>> bert_tf.inspection.to_html(both, "inspection.html")
        InspectionPage(...)
    """
    found = [inspections] if isinstance(inspections, Inspection) else list(inspections)
    if not 1 <= len(found) <= 2 or not all(isinstance(one, Inspection) for one in found):
        kinds = ", ".join(type(one).__name__ for one in found) or "none"
        raise UserError(f"`inspections` must be one Inspection or two. Received: {kinds}")
    page = page_of({"title": title, "live": None, "inspections": [page_data(one) for one in found]})
    size = len(page) / 1e6  # nearly all of it is ASCII
    if size > max_megabytes:
        raise UserError(
            f"The page must have at most max_megabytes={max_megabytes:g}. Received: {size:.0f} MB, "
            "mostly attention, which grows with the square of the text. Inspect a shorter text, or "
            "pass a larger `max_megabytes`."
        )
    if path is not None:
        with atomic_path(path) as staged, open(staged, "w", encoding="utf-8") as file:
            file.write(page)
    return InspectionPage(page)


def page_of(data: dict[str, Any]) -> str:
    """Returns the page for its data.

    Args:
        data: `title`, `inspections` and `live`; with `live` the page has a form and may ask the
            server that it came from.
    """
    style, script = _text("page.css"), "".join(map(_text, _SCRIPTS))
    connect = "'self'" if data["live"] else "'none'"
    policy = page_policy(style, script, connect)
    values = {"policy": policy, "style": style, "data": embedded(data), "script": script}
    page = _text("page.html")
    parts = page.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:  # in one pass, so that braces in a value stay
        name, _, rest = part.partition("}}")
        filled += [values[name], rest]
    return "".join(filled)


def embedded(data: Any) -> str:
    r"""Returns JSON that is safe in an HTML element: ASCII without `<`, `>` and `&`.

    Example:
        >>> embedded("</script>\u2028")
        '"\\u003c/script\\u003e\\u2028"'
    """
    return json.dumps(data, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _text(name):
    return (importlib.resources.files(__package__) / "page_files" / name).read_text(
        encoding="utf-8"
    )
