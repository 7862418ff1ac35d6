"""Checks that a tool can draw pictures."""

import os

from bert_tf.base.files import atomic_path
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError

_FORMATS = (".png", ".svg", ".pdf")


def require_plotting(path: str, flag: str) -> None:
    """Checks that matplotlib can write the picture that a flag names, before any work."""
    if os.path.splitext(path)[1] not in _FORMATS:
        raise UserError(f"--{flag} must be a .png, .svg or .pdf file. Received: --{flag}={path}")
    require_package("matplotlib", f"--{flag}")


def save(figure, path: str, **options) -> None:
    with atomic_path(path) as new:
        figure.savefig(new, format=os.path.splitext(path)[1][1:], **options)
