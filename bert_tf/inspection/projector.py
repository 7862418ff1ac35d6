"""Vectors for TensorBoard's projector.

Its reader (`tf_projector_plugin/projector_binary.js` of the package tensorboard) skips lines that
are blank, ends a row at every line break, and takes the first line for the names of the columns if
and only if there is a tab in it. So every row that is written has a character that is not blank.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.files import staged_files
from bert_tf.base.printable_text import escape_unprintable
from bert_tf.base.vectors import as_finite_floats, as_matrix
from bert_tf.errors import user_error

TENSORS, METADATA, CONFIG = "tensors.tsv", "metadata.tsv", "projector_config.pbtxt"
EMPTY = "(empty)"  # what is shown for a text without characters
_NAME = re.compile(r"[A-Za-z0-9_-]+")
# Blank for JavaScript's `trim`, but not for Python's `split`.
_BYTE_ORDER_MARK = "\ufeff"
_ENTRY = """embeddings {{
  tensor_name: "{name}"
  tensor_path: "{folder}{tensors}"
  metadata_path: "{folder}{metadata}"
}}
"""


class Projection(NamedTuple):
    """Vectors and their metadata.

    Attributes:
        vectors: Floats `[n, D]`.
        metadata: Columns of n values by name.

    Example:
        >>> Projection(np.eye(2), {"text": ["one", "two"]}).vectors.shape
        (2, 2)
    """

    vectors: np.ndarray
    metadata: Mapping[str, Sequence[Any]]


def write_projector(
    directory: str | os.PathLike, vectors: np.ndarray, metadata: Mapping[str, Sequence[Any]]
) -> None:
    r"""Writes tensors.tsv, metadata.tsv and projector_config.pbtxt.

    `tensorboard --logdir=DIRECTORY` shows them in three dimensions. The two tables can also be
    loaded at projector.tensorflow.org.

    Args:
        directory: Where the files are written, atomically.
        vectors: Floats `[n, D]`; at most some ten thousand, because a browser draws them.
        metadata: Columns of n values by name, such as texts and clusters. White space becomes
            single spaces; a text of white space alone is written as `\t`, an empty one as
            `(empty)`.

    Raises:
        UserError: If there is no column, the sizes differ, or a value is not finite.

    Example:
        >>> write_projector("projector/", np.eye(2), {"text": ["one", "two"]})
        >>> print(open("projector/metadata.tsv").read(), end="")
        one
        two
    """
    projection = _checked(Projection(vectors, metadata), "")
    with staged_files(directory) as new:
        _write_tables(new, projection)
        _write_config(new, [_ENTRY.format(name="vectors", folder="", **_FILES)])


def write_projections(directory: str | os.PathLike, projections: Mapping[str, Projection]) -> None:
    """Writes several sets of vectors, between which TensorBoard's projector has a menu.

    Args:
        directory: Where projector_config.pbtxt is written, and for each set a folder with
            tensors.tsv and metadata.tsv; all of them together, atomically.
        projections: The sets by name: letters, digits, `_` and `-`.

    Raises:
        UserError: If there is no set, a name has other characters, or for the reasons of
            `write_projector`.

    Example:
        >>> words = Projection(np.eye(2), {"word": ["one", "two"]})
        >>> write_projections("projector/", {"words": words})
        >>> print(open("projector/words/metadata.tsv").read(), end="")
        one
        two
    """
    if not projections or not all(map(_NAME.fullmatch, projections)):
        expected = "have names of letters, digits, `_` and `-`, at least one"
        raise user_error("`projections`", expected, list(projections))
    checked = {name: _checked(values, f" of {name}") for name, values in projections.items()}
    with staged_files(directory) as new:
        for name, projection in checked.items():
            os.mkdir(os.path.join(new, name))
            _write_tables(os.path.join(new, name), projection)
        _write_config(new, [_ENTRY.format(name=n, folder=f"{n}/", **_FILES) for n in checked])


_FILES = {"tensors": TENSORS, "metadata": METADATA}


def _checked(projection, of):
    vectors = as_finite_floats(as_matrix(projection.vectors, f"vectors{of}"), False, f"vectors{of}")
    columns = {name: list(values) for name, values in projection.metadata.items()}
    if not columns or any(len(values) != len(vectors) for values in columns.values()):
        expected = f"have at least one column, each of {len(vectors)} values"
        received = {name: len(values) for name, values in columns.items()}
        raise user_error(f"`metadata`{of}", expected, received)
    return Projection(vectors, columns)


def _write_tables(folder, projection):
    columns = projection.metadata
    rows = list(zip(*columns.values()))
    # TensorBoard takes the first line as the names only if there are several columns.
    header = [tuple(columns)] if len(columns) > 1 else []
    with open(os.path.join(folder, TENSORS), "w", encoding="utf-8") as file:
        for row in projection.vectors.tolist():
            file.write("\t".join(f"{x:.7g}" for x in row) + "\n")
    with open(
        os.path.join(folder, METADATA), "w", encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.writelines("\t".join(map(_field, row)) + "\n" for row in header + rows)


def _write_config(folder, entries):
    with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
        file.writelines(entries)


def _field(value):
    text = str(value)
    words = text.replace(_BYTE_ORDER_MARK, " ").split()
    return " ".join(words) or escape_unprintable(text).replace(" ", r"\x20") or EMPTY
