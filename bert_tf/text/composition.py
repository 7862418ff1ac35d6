"""Unicode's canonical composition (NFC) in the graph, as Hugging Face's `tokenizers` computes it.

Characters are decomposed and their marks sorted. Then each starter, a character of combining class
0, takes up the characters after it with which it has a composite, one in each round.

Glossary: `C` code points of all strings.

Reference: Unicode Standard Annex 15; unicode-rs/unicode-normalization `recompose.rs`.
"""

import functools

import numpy as np
import tensorflow as tf

from bert_tf.text import code_points
from bert_tf.text.code_points import CodePoints, CodePointTable, SparseTable
from bert_tf.text.unicode_tables import hugging_face_data, hugging_face_decomposition


def composed(points: CodePoints) -> CodePoints:
    """Returns the NFC form of strings."""
    is_changing = tf.reduce_any(_tables().changes(points.values) > 0)
    return tf.cond(is_changing, lambda: _composed(points), lambda: points)


class _Tables:
    """What composition needs to know about characters.

    `changes` is 1 for the code points that NFC may change, or join with the one before.
    """

    def __init__(self):
        rules, classes = hugging_face_decomposition()
        excluded = hugging_face_data().properties["excluded"]
        composites = {
            to: char for char, to in rules.items() if len(to) > 1 and not excluded[ord(char)]
        }
        pairs = {
            code_points.pair(ord(composites.get(to[:-1], to[0])), ord(to[-1])): ord(char)
            for to, char in composites.items()
        }
        numbers = np.zeros(code_points.NUM_CODE_POINTS, np.int32)
        numbers[[*map(ord, rules)]] = np.arange(1, len(rules) + 1)
        changes = classes > 0
        changes[[*map(ord, rules.keys() - composites.values()), *(p % 2**31 for p in pairs)]] = True
        self.changes, self.classes = CodePointTable(changes), CodePointTable(classes)
        self.rules = CodePointTable(numbers)
        self.replacements = code_points.Replacements([*rules.values()])
        self.composites = SparseTable([*pairs], [*pairs.values()], 0)


@functools.cache
def _tables() -> _Tables:
    return _Tables()


def _composed(points: CodePoints) -> CodePoints:
    tables = _tables()
    values, sources = tables.replacements(points.values, tables.rules(points.values))
    rows, taken = tf.gather(points.rows, sources), code_points.starts(sources)
    classes = tables.classes(values)
    is_new = (classes == 0) | code_points.starts(rows)
    order = tf.cumsum(tf.cast(is_new, tf.int64)) * 256 + tf.cast(classes, tf.int64)
    order = tf.argsort(order, stable=True)
    # `taken`: how many of the original code points each one stands for.
    values, taken = tf.gather(values, order), tf.gather(tf.cast(taken, tf.int64), order)

    def compose(_, values, rows, taken):
        classes = tables.classes(values)
        is_starter = classes == 0
        starters = tf.where(is_starter)[:, 0]
        before = tf.cumsum(tf.cast(is_starter, tf.int64), exclusive=True)
        places = tf.range(tf.size(values, tf.int64))
        owners = tf.gather(tf.concat([[0], starters], axis=0), before)  # the starter before each
        is_next = owners == places - 1
        joins = (owners < places) & (before > 0) & (tf.gather(rows, owners) == rows)
        joins &= is_next | (tf.roll(classes, 1, 0) < classes)
        made = tables.composites(tf.gather(values, owners), values)
        chosen = tf.where(joins & (made > 0))[:, 0]
        chosen = tf.boolean_mask(chosen, code_points.starts(tf.gather(owners, chosen)))
        owners = tf.gather(owners, chosen)[:, tf.newaxis]
        values = tf.tensor_scatter_nd_update(values, owners, tf.gather(made, chosen))
        taken = tf.tensor_scatter_nd_add(taken, owners, tf.gather(taken, chosen))
        left = tf.where(~code_points.mask_of(chosen, tf.size(values, tf.int64)))[:, 0]
        return tf.size(chosen), *(tf.gather(of, left) for of in (values, rows, taken))

    scalar, vector = tf.TensorShape([]), tf.TensorShape([None])
    _, values, _, taken = tf.while_loop(
        lambda joined, *_: joined > 0,
        compose,
        (1, values, rows, taken),
        shape_invariants=(scalar, vector, vector, vector),
    )
    # Matches tokenizers, normalizer.rs, `transform`: spans have the first of what a code point
    # stands for, or the one before it if it stands for none.
    first = tf.cumsum(taken, exclusive=True)
    first = tf.where(taken > 0, first, tf.maximum(first - 1, 0))
    return points.gather(first)._replace(values=values)
