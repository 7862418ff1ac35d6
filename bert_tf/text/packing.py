"""Segments to model inputs: truncation, special tokens, padding; pure functions on ragged ids.

Glossary: `B` rows, `T` length of the longest packed row (or the asked length).

Reference: google-research/bert `run_classifier.py`, `_truncate_seq_pair` and
`convert_single_example`.
"""

import tensorflow as tf

TRUNCATIONS = ("longest_first", "only_first", "only_second")


def truncated_lengths(
    first: tf.Tensor, second: tf.Tensor, budget: int, truncation: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """How many tokens of each segment are kept, from its front.

    Args:
        first: `[B]` int64, lengths of the first segments.
        second: `[B]` int64, lengths of the second segments.
        budget: how many tokens a row may have, special tokens not counted.
        truncation: "longest_first" (google-research/bert's: the longer one loses its last token
            until both fit, the second one where they are equal), "only_first" or "only_second".

    Returns:
        The two kept lengths, `[B]` int64.

    Raises:
        tf.errors.InvalidArgumentError: the segment that must stay whole does not fit alone.
    """
    limit = tf.cast(budget, first.dtype)
    if truncation == "longest_first":
        kept = tf.minimum(first, tf.maximum(limit - limit // 2, limit - second))
        return kept, tf.minimum(second, limit - kept)
    whole = second if truncation == "only_first" else first
    fits = tf.debugging.Assert(tf.reduce_all(whole <= limit), [
        f"Expected the segment that truncation={truncation!r} keeps whole to have at most "
        f"{budget} tokens. Received: row(s)", tf.where(whole > limit)[:, 0], "with lengths",
        tf.boolean_mask(whole, whole > limit),
        "Raise max_length or use truncation='longest_first'."])
    with tf.control_dependencies([fits] if fits is not None else []):
        rest = limit - whole
    if truncation == "only_first":
        return tf.minimum(first, rest), second
    return first, tf.minimum(second, rest)


def pack(
    first: tf.RaggedTensor,
    second: tf.RaggedTensor | None,
    cls_id: int,
    sep_id: int,
    max_length: int | None,
    truncation: str,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins segments to `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.

    Args:
        first: ragged int32 `[B, (ids)]`.
        second: the same, or None.
        cls_id: the id put in front.
        sep_id: the id put behind each segment.
        max_length: the greatest length of a row, special tokens counted; None for any.
        truncation: see `truncated_lengths`.

    Returns:
        Token ids and segment ids, both ragged int32 `[B, (T)]` with the same row splits.
    """
    if max_length is not None:
        if second is None:
            first = first[:, :max_length - 2]
        else:
            kept_first, kept_second = truncated_lengths(
                first.row_lengths(), second.row_lengths(), max_length - 3, truncation)
            first, second = _front(first, kept_first), _front(second, kept_second)
    rows = first.nrows()

    def column(token_id: int) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_uniform_row_length(tf.fill([rows], token_id), 1, nrows=rows)

    parts = [column(cls_id), first, column(sep_id)]
    if second is not None:
        parts += [second, column(sep_id)]
    token_ids = tf.concat(parts, axis=1)
    token_ids = tf.RaggedTensor.from_row_splits(
        token_ids.values, token_ids.row_splits, validate=False)
    if second is None:
        return token_ids, tf.zeros_like(token_ids)
    lengths = token_ids.row_lengths()
    positions = tf.range(tf.reduce_sum(lengths)) - tf.repeat(token_ids.row_starts(), lengths)
    boundary = tf.repeat(first.row_lengths() + 2, lengths)
    return token_ids, token_ids.with_values(tf.cast(positions >= boundary, tf.int32))


def pad(
    token_ids: tf.RaggedTensor,
    segment_ids: tf.RaggedTensor,
    pad_id: int,
    length: int | None,
    multiple: int,
) -> dict[str, tf.Tensor]:
    """Packed rows to dense model inputs.

    Args:
        token_ids: ragged int32 `[B, (T)]`.
        segment_ids: the same.
        pad_id: the id at padded positions; the segment there is 0.
        length: `T`; None for the longest row.
        multiple: `T` becomes the next multiple of it (where `length` is None).

    Returns:
        `token_ids` and `segment_ids` int32 `[B, T]`, `padding_mask` bool `[B, T]`, True at tokens.
    """
    lengths = token_ids.row_lengths()
    if length is None:
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
        width = -(-longest // multiple) * multiple
    else:
        width = tf.constant(length, tf.int64)
    mask = tf.sequence_mask(lengths, width)  # [B, T]
    shape = tf.stack([token_ids.nrows(), width])
    places = tf.where(mask)

    def dense(values: tf.Tensor, default: int) -> tf.Tensor:
        result = tf.tensor_scatter_nd_update(tf.fill(shape, default), places, values)
        return tf.ensure_shape(result, [None, length])

    return {
        "token_ids": dense(token_ids.values, pad_id),
        "segment_ids": dense(segment_ids.values, 0),
        "padding_mask": tf.ensure_shape(mask, [None, length]),
    }


def _front(segments: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first `lengths[i]` values of row i."""
    starts = segments.row_starts()
    kept = tf.ragged.range(starts, starts + lengths, row_splits_dtype=tf.int64)
    return kept.with_values(tf.gather(segments.values, kept.values))
