"""Figures of matplotlib and the files that they are written to. No window is opened."""

import os
from typing import TYPE_CHECKING, Any

from bert_tf.base.files import atomic_path
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import user_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")


def require_picture(path: str | os.PathLike, name: str = "`path`") -> None:
    """Raises `UserError` if matplotlib is missing or writes no such file; before any work."""
    if os.path.splitext(path)[1].lower() not in FORMATS:
        raise user_error(name, "be a .png, .svg or .pdf file", repr(os.fspath(path)))
    require_package("matplotlib", "pictures")


def new_figure(size: tuple[float, float]) -> "Figure":
    """Returns an empty figure of a size in inches.

    Raises:
        UserError: If matplotlib is missing.
    """
    figures = require_package("matplotlib.figure", "pictures")
    return figures.Figure(figsize=size, layout="constrained")


def save_picture(figure: "Figure", path: str | os.PathLike | None, **options: Any) -> "Figure":
    """Writes a figure atomically, if there is a path, and returns it.

    Raises:
        UserError: If the path has another ending than `FORMATS`.
    """
    if path is not None:
        require_picture(path)
        suffix = os.path.splitext(path)[1].lower()
        with atomic_path(path) as new:
            figure.savefig(new, format=suffix[1:], **{"dpi": 150, **options})
    return figure
