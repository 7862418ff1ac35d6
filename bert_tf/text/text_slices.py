"""Slices of texts by character offsets, in the graph.

Glossary: `B` texts, `S` slices.
"""

import tensorflow as tf


class TextSlices:
    """Texts that are decoded once and sliced any number of times.

    `tf.strings.substr` would copy the whole text for every slice.

    Args:
        texts: Strings `[B]` in UTF-8.

    Example:
        >>> rows = tf.constant([0, 0], tf.int64)
        >>> starts, ends = tf.constant([0, 3], tf.int64), tf.constant([2, 9], tf.int64)
        >>> [text.decode() for text in TextSlices(["Él duerme"])(rows, starts, ends).numpy()]
        ['Él', 'duerme']
    """

    def __init__(self, texts: tf.Tensor):
        decoded = tf.strings.unicode_decode(texts, "UTF-8")  # ragged [B, (characters)]
        self._characters = decoded.values
        self._row_starts = decoded.row_starts()

    def __call__(self, rows: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Returns the characters `[starts, ends)` of the texts `rows`, all int64 `[S]`."""
        first = tf.gather(self._row_starts, rows)
        places = tf.ragged.range(first + starts, first + ends)  # ragged [S, (characters)]
        slices = places.with_values(tf.gather(self._characters, places.values))
        return tf.strings.unicode_encode(slices, "UTF-8")
