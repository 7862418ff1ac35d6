"""Rows of tokens with their padding at another place."""

import numpy as np
import tensorflow as tf

from tests.conformance.task import LENGTH

# What is at padding: it must have no effect.
_PADDING = {"token_ids": 5, "segment_ids": 1, "padding_mask": False, "positions": 3}


def moved(features, side):
    """Moves the padding of rows `[..., T]` to the left or to the middle, or leaves it right.

    Returns:
        The features with `LENGTH` columns, with the positions that the tokens had before, and the
        new columns of the tokens, `[..., T]`.
    """
    mask = features["padding_mask"]
    lengths = mask.sum(axis=-1, keepdims=True)
    places = np.where(mask, mask.cumsum(axis=-1) - 1, 0)
    shifted = {"right": False, "left": True, "middle": places >= lengths // 2}[side]
    columns = places + shifted * (LENGTH - lengths)
    rows = {**features, "positions": places.astype(np.int32)}
    for name, padding in _PADDING.items():
        values = np.full([*mask.shape[:-1], LENGTH], padding, rows[name].dtype)
        values[(*np.nonzero(mask)[:-1], columns[mask])] = rows[name][mask]
        rows[name] = values
    if "masked_positions" in rows:
        rows["masked_positions"] = np.take_along_axis(columns, rows["masked_positions"], axis=-1)
    return rows, columns


def at_tokens(outputs, features, columns):
    """Takes what outputs with a value for every column have at the real tokens."""
    mask = features["padding_mask"]

    def taken(values):
        values = np.asarray(values)
        if values.shape[-1] == LENGTH:  # [B, 2, T] -> [B, T, 2], or [B, T]
            values = np.moveaxis(values, -1, 1)
        if values.shape[1:2] != (LENGTH,):
            return values
        return values[np.nonzero(mask)[0], columns[mask]]

    return tf.nest.map_structure(taken, outputs)
