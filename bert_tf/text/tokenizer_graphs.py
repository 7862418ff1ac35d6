"""The traced functions of tokenizers, from strings of any shape to ids and to rows of tokens.

Tokenizers with the same pieces and options share them: tracing takes up to a second, and notebooks
and tests create the same tokenizer many times.

Glossary: `B` strings, `T` pieces of a string or tokens of a row.
"""

import contextlib
import contextvars
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.flat_functions import FlatFunction
from bert_tf.errors import ConfigError, user_error
from bert_tf.text import packing
from bert_tf.text.code_points import PieceModel, Pieces, checked

TextLike = str | Sequence[str] | tf.Tensor | tf.RaggedTensor
_STRINGS, _SIZE = tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int64)
# What the graph that is traced assumes of the texts of whom: see `TokenizerGraphs.assuming`.
_assumed: contextvars.ContextVar = contextvars.ContextVar("assumed", default=(None, None))


class TokenizerGraphs:
    """Functions from strings `[B]`, each traced once for texts of any number and length.

    In a graph, they take any text, or texts that are `assumed`. Eagerly, the model chooses what the
    texts need.

    Args:
        model: What converts strings to ids.
    """

    def __init__(self, model: PieceModel):
        self.model = model
        self._functions: dict[Any, Callable] = {}

    @contextlib.contextmanager
    def assuming(self, model: PieceModel) -> Iterator[None]:
        """Makes graphs that are traced in this context use what `for_texts` returned for texts."""
        token = _assumed.set((self, model))
        try:
            yield
        finally:
            _assumed.reset(token)

    def for_texts(self, columns: list[tf.Tensor]) -> PieceModel:
        """Returns what converts texts like these, and needs no more than they do."""
        graphs, model = _assumed.get()
        is_assumed = graphs is self and not tf.executing_eagerly()
        return model if is_assumed else self.model.for_texts(columns)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        model = self.for_texts([texts])
        return self._traced(model.ids, model.ids, [_STRINGS])(texts)

    def pieces(self, texts: tf.Tensor, trims: bool) -> Pieces:
        """Returns the `Pieces` of strings `[B]`, with `trims` without spaces before them."""
        model = self.for_texts([texts])

        def pieces(texts):
            found = model.pieces(texts)
            found = found.trimmed(texts) if trims else found
            return Pieces(*found, *found[1:]) if model.takes_ascii else found.pieces(texts)

        return self._traced((model, trims), pieces, [_STRINGS])(texts)

    def rows(self, columns: list[tf.Tensor], form: tuple, sizes: dict[str, int]) -> dict:
        """Returns the model inputs for texts, one column of strings `[B]`, or for pairs, two.

        Args:
            columns: The strings.
            form: What the rows look like: `cls_id`, `sep_id`, `pad_id` (None for ragged rows), and
                the arguments of `packing.pack` from `truncation` on.
            sizes: `max_length` of `packing.pack`, and `length` or `multiple` of `packing.pad`, if
                they are given.
        """
        model = self.for_texts(columns)
        ids = self._traced(model.ids, model.ids, [_STRINGS])

        def rows(columns, sizes):
            if len(columns) == 1:
                segments = ids(columns[0]), None
            else:  # equal texts once: the query of many documents, the context of many questions
                segments = []
                for texts in columns:
                    texts, places = tf.unique(checked(texts, model.errors))  # an error names rows
                    segments.append(tf.gather(ids(texts), places))
            cls_id, sep_id, pad_id, *options = form
            rows = packing.pack(*segments, cls_id, sep_id, sizes.get("max_length"), *options)
            if pad_id is None:
                return dict(zip(("token_ids", "segment_ids"), rows))
            return packing.pad(*rows, pad_id, sizes.get("length"), sizes.get("multiple", 1))

        if not tf.executing_eagerly():
            return rows(columns, sizes)
        specs = [[_STRINGS] * len(columns), dict.fromkeys(sizes, _SIZE)]
        key = (model, form, len(columns), *sizes)
        try:
            return self._traced(key, rows, specs)(columns, sizes)
        except tf.errors.InvalidArgumentError:
            return rows(columns, sizes)  # whose error has a message for people

    def _traced(self, key: Any, function: Callable, signature: list) -> Callable:
        """Returns `function` as a graph, which is made when its key comes first."""
        if key not in self._functions:
            self._functions.setdefault(key, FlatFunction(function, signature, device="CPU:0"))
        return self._functions[key]


def as_strings(
    texts: TextLike, name: str, ranks: Sequence[int] | None = None
) -> tf.Tensor | tf.RaggedTensor:
    """Returns texts, the argument `name` of a public function, as a tensor.

    The row splits of a RaggedTensor become int64, those of all ragged results of this package.
    `ranks` are the ranks that it may have, (0, 1) or (1,); None allows all. Raises `ConfigError` if
    they are not strings, or have another rank or an unknown one.
    """
    if isinstance(texts, tf.RaggedTensor):
        strings = texts.with_row_splits_dtype(tf.int64)
    else:
        is_empty = isinstance(texts, (list, tuple)) and not texts
        convert = tf.constant if isinstance(texts, np.ndarray) else tf.convert_to_tensor  # faster
        strings = convert(texts, tf.string if is_empty else None)
    if strings.dtype != tf.string:
        dtype = strings.dtype.name
        raise ConfigError(f"`{name}` must be strings. Received: {name}.dtype={dtype!r}.")
    if strings.shape.rank is None:
        expected = "be strings of known rank, such as `tf.ensure_shape(texts, [None])`"
        raise user_error(f"`{name}`", expected, f"{name}.shape={strings.shape}.", ConfigError)
    if ranks is not None and strings.shape.rank not in ranks:
        expected = "one string or a batch [B]" if 0 in ranks else "a batch [B]"
        received = f"{name}.shape={strings.shape}."
        raise user_error(f"`{name}`", f"be {expected} of strings", received, ConfigError)
    return strings


def map_strings(function: Callable, texts: TextLike) -> tf.RaggedTensor | tf.Tensor:
    """Applies a function of strings `[B]` to strings of any shape.

    Raises `ConfigError` if `texts` are not strings.
    """
    texts = as_strings(texts, "texts")
    if isinstance(texts, tf.RaggedTensor):
        return texts.with_flat_values(function(texts.flat_values))
    rank = texts.shape.rank
    if rank == 0:
        return function(texts[tf.newaxis])[0]
    if rank == 1:
        return function(texts)
    ragged = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
    return ragged.with_flat_values(function(ragged.flat_values))
