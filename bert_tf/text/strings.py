"""Texts of any shape as string tensors."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from bert_tf.base.assertions import assert_that
from bert_tf.errors import ConfigError

# The beginning of the error that the graph raises.
MALFORMED_TEXT = "Every text must be valid UTF-8."
TextLike = str | Sequence[str] | tf.Tensor | tf.RaggedTensor


def as_strings(
    texts: TextLike, name: str, ranks: Sequence[int] | None = None
) -> tf.Tensor | tf.RaggedTensor:
    """Returns texts, the argument `name` of a public function, as a tensor.

    The row splits of a RaggedTensor become int64, those of all ragged results of this package.
    `ranks` are the ranks that it may have, (0, 1) or (1,); None allows all.

    Raises:
        ConfigError: If they are not strings, or have another rank or an unknown one.
    """
    if isinstance(texts, tf.RaggedTensor):
        strings = texts.with_row_splits_dtype(tf.int64)
    else:
        is_empty = isinstance(texts, (list, tuple)) and not texts
        strings = tf.convert_to_tensor(texts, tf.string if is_empty else None)
    if strings.dtype != tf.string:
        dtype = strings.dtype.name
        raise ConfigError(f"`{name}` must be strings. Received: {name}.dtype={dtype!r}.")
    if strings.shape.rank is None:
        raise ConfigError(
            f"`{name}` must be strings of known rank, such as `tf.ensure_shape(texts, [None])`. "
            f"Received: {name}.shape={strings.shape}."
        )
    if ranks is not None and strings.shape.rank not in ranks:
        expected = "one string or a batch [B]" if 0 in ranks else "a batch [B]"
        raise ConfigError(
            f"`{name}` must be {expected} of strings. Received: {name}.shape={strings.shape}."
        )
    return strings


def map_strings(function: Callable, texts: TextLike) -> tf.RaggedTensor | tf.Tensor:
    """Applies a function of strings `[B]` to strings of any shape.

    Raises:
        ConfigError: If `texts` are not strings.
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


def checked(texts: tf.Tensor, errors: str | None) -> tf.Tensor:
    """Returns texts in UTF-8.

    Args:
        texts: Strings `[B]`.
        errors: "strict" or "replace", as in `BertTokenizer`; with None, they are not checked.

    Raises:
        tf.errors.InvalidArgumentError: If errors="strict" and a text is not UTF-8. The message
            names the rows.
    """
    if errors is None:
        return texts
    if errors == "replace":
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    valid = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore") == texts
    check = assert_that(
        tf.reduce_all(valid),
        [
            f"{MALFORMED_TEXT} Received: malformed bytes in row(s)",
            tf.where(~valid)[:, 0],
            "Decode the text with its real encoding, or create the tokenizer with "
            "errors='replace'.",
        ],
        summarize=20,
    )
    with tf.control_dependencies(check):
        return tf.identity(texts)
