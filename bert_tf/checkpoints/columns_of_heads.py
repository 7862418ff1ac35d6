"""The columns of queries, keys and values in files that have them in another order.

Rotations of RoFormer turn columns 2 c and 2 c + 1 of a head, those of this package columns c and
c + D / 2: the scores of attention do not depend on the order. DeBERTa has one tensor with the
queries, keys and values of the first head, then those of the next. The columns are put in this
package's order when a file is read, and back when it is written.

Sources: `transformers`, modeling_roformer.py and modeling_deberta.py.
"""

import numpy as np

from bert_tf.base.file_errors import tensor_error
from bert_tf.base.tensor_source import TensorSource

_TABLE = "encoder.embed_positions.weight"


def halves_of_heads(values: np.ndarray, head_size: int) -> np.ndarray:
    """Puts columns 2 c of each head first, then columns 2 c + 1: `[N * D, ...]`."""
    return _swapped(values, (head_size // 2, 2))


def pairs_of_heads(values: np.ndarray, head_size: int) -> np.ndarray:
    """Puts columns c and c + D / 2 of each head next to each other: `[N * D, ...]`."""
    return _swapped(values, (2, head_size // 2))


def heads_together(values: np.ndarray, head_size: int) -> np.ndarray:
    """Puts the query, key and value of each head next to each other: `[3 * N * D, ...]`."""
    return _swapped_heads(values, head_size, (3, -1))


def heads_apart(values: np.ndarray, head_size: int) -> np.ndarray:
    """Puts the queries of all heads first, then the keys, then the values: `[3 * N * D, ...]`."""
    return _swapped_heads(values, head_size, (-1, 3))


def _swapped_heads(values, head_size, sizes):
    heads = values.reshape(*sizes, head_size, *values.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(0, 1)).reshape(values.shape)


def _swapped(values, sizes):
    parts = values.reshape(-1, *sizes, *values.shape[1:])
    return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(values.shape)


def check_table(source: TensorSource, head_size: int) -> None:
    """Raises `CheckpointError` if a file has positions that are not those of `position_table`."""
    name = next((name for name in source.shapes if name.endswith(_TABLE)), None)
    if name is None:
        return
    expected = position_table(source.shapes[name][0], head_size)[_TABLE]
    values = source.read(name)
    is_same = values.shape == expected.shape and np.allclose(values, expected, atol=1e-3)
    if not is_same:
        raise tensor_error(source, name, "hold the sines and cosines of positions", "other values")


def position_table(length: int, head_size: int) -> dict[str, np.ndarray]:
    """Returns the table of sines and cosines that its files hold, by its name in them."""
    frequencies = 10_000.0 ** (-2.0 * np.arange(head_size // 2) / head_size)
    angles = np.arange(length)[:, np.newaxis] * frequencies
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return {_TABLE: table.astype(np.float32)}
