"""Vectors for TensorBoard's projector."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError
from bert_tf.files import staged_files
from bert_tf.search.best_rows import finite_rows, matrix

_CONFIG = """embeddings {
  tensor_path: "tensors.tsv"
  metadata_path: "metadata.tsv"
}
"""


def write_projector(
    directory: str | os.PathLike, vectors: np.ndarray, metadata: Mapping[str, Sequence[Any]]
) -> None:
    """Writes tensors.tsv, metadata.tsv and projector_config.pbtxt.

    `tensorboard --logdir=DIRECTORY` shows them in three dimensions. The two tables can also be
    loaded at projector.tensorflow.org.

    Args:
        directory: Where the files are written, atomically.
        vectors: Floats `[n, D]`; some ten thousand at most, as a browser draws them.
        metadata: Columns of n values by name, such as texts and clusters. Tabs and line breaks
            become spaces.

    Raises:
        UserError: If there is no column, the sizes differ, or a value is not finite.

    Example:
        >>> write_projector("projector/", np.eye(2), {"text": ["one", "two"]})
        >>> print(open("projector/metadata.tsv").read(), end="")
        one
        two
    """
    vectors = finite_rows(matrix(vectors, "vectors"), False, "vectors")
    columns = {name: list(values) for name, values in metadata.items()}
    if not columns or any(len(values) != len(vectors) for values in columns.values()):
        raise UserError(
            f"`metadata` must have at least one column, each of {len(vectors)} values. Received: "
            f"{ {name: len(values) for name, values in columns.items()} }."
        )
    rows = list(zip(*columns.values()))
    # TensorBoard takes the first line as the names only if there are several columns.
    header = [tuple(columns)] if len(columns) > 1 else []
    with staged_files(directory) as new:
        with open(os.path.join(new, "tensors.tsv"), "w", encoding="utf-8") as file:
            file.writelines("\t".join(f"{x:.7g}" for x in row) + "\n" for row in vectors.tolist())
        with open(os.path.join(new, "metadata.tsv"), "w", encoding="utf-8") as file:
            file.writelines("\t".join(map(_field, row)) + "\n" for row in header + rows)
        with open(os.path.join(new, "projector_config.pbtxt"), "w", encoding="utf-8") as file:
            file.write(_CONFIG)


def _field(value):
    return " ".join(str(value).split())
