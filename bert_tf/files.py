"""Files that are there whole or not at all."""

import contextlib
import os
import shutil
import tempfile


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike):
    """Yields a temporary path beside `path`; when the block ends well it becomes `path`.

    If the block raises, nothing is left behind and an older `path` stays as it was. Works for a
    file and for a directory; an older directory is replaced as a whole.
    """
    path = os.path.abspath(path)
    parent = os.path.dirname(path)
    os.makedirs(parent, exist_ok=True)
    staging = tempfile.mkdtemp(prefix=f".{os.path.basename(path)}.", dir=parent)
    new = os.path.join(staging, os.path.basename(path))
    try:
        yield new
        if os.path.isdir(new) and os.path.isdir(path):
            os.replace(path, os.path.join(staging, "replaced"))
        os.replace(new, path)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
