"""Segments to model inputs: truncation, special tokens, padding; pure functions on ragged ids.

Glossary: `B` rows, `T` length of the longest packed row (or the asked length).

Reference: google-research/bert `run_classifier.py`, `_truncate_seq_pair` and
`convert_single_example`.
"""

import tensorflow as tf

TRUNCATIONS = ("longest_first", "only_first", "only_second")
TRUNCATION_SIDES = ("right", "left", "middle")


def truncated_lengths(
    first: tf.Tensor, second: tf.Tensor, budget: int, truncation: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """How many tokens of each segment are kept.

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
    fits = tf.debugging.Assert(
        tf.reduce_all(whole <= limit),
        [
            f"Expected the segment that truncation={truncation!r} keeps whole to have at most "
            f"{budget} tokens. Received: row(s)",
            tf.where(whole > limit)[:, 0],
            "with lengths",
            tf.boolean_mask(whole, whole > limit),
            "Raise max_length or use truncation='longest_first'.",
        ],
    )
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
    truncation_side: str = "right",
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins segments to `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.

    Args:
        first: ragged int32 `[B, (ids)]`.
        second: the same, or None.
        cls_id: the id put in front.
        sep_id: the id put behind each segment.
        max_length: the greatest length of a row, special tokens counted; None for any.
        truncation: see `truncated_lengths`.
        truncation_side: where segments are cut; see `BertTokenizer`.

    Returns:
        Token ids and segment ids, both ragged int32 `[B, (T)]` with the same row splits.
    """
    if max_length is not None:
        if second is None:
            kept_first = tf.minimum(first.row_lengths(), max_length - 2)
            first = _kept(first, kept_first, truncation_side)
        else:
            kept_first, kept_second = truncated_lengths(
                first.row_lengths(), second.row_lengths(), max_length - 3, truncation
            )
            first = _kept(first, kept_first, truncation_side)
            second = _kept(second, kept_second, truncation_side)
    rows = first.nrows()

    def column(token_id: int) -> tf.RaggedTensor:
        return tf.RaggedTensor.from_uniform_row_length(tf.fill([rows], token_id), 1, nrows=rows)

    parts = [column(cls_id), first, column(sep_id)]
    if second is not None:
        parts += [second, column(sep_id)]
    token_ids = tf.concat(parts, axis=1)
    token_ids = tf.RaggedTensor.from_row_splits(
        token_ids.values, token_ids.row_splits, validate=False
    )
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


def pack_and_pad(
    segments: tf.RaggedTensor,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    max_length: int | None,
    length: int | None,
    multiple: int,
) -> dict[str, tf.Tensor]:
    """`pack` and `pad` of one segment a row that loses its end, in a tenth of the ops: for one
    short text they take longer than the tokens.

    Args and returns: as of `pack` and `pad`.
    """
    lengths = segments.row_lengths() + 2  # [B], of the packed rows
    if max_length is not None:
        lengths = tf.minimum(lengths, max_length)
    if length is None:
        width = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
        width = -(-width // multiple) * multiple if multiple > 1 else width
    else:
        width = tf.constant(length, tf.int64)
    inner = segments.to_tensor(pad_id, shape=tf.stack([-1, tf.maximum(width - 2, 0)]))
    inner = tf.pad(inner, [[0, 0], [1, 1]], constant_values=pad_id)[:, :width]  # [B, T]
    columns, ends = tf.range(width), lengths[:, tf.newaxis]
    token_ids = tf.where(columns == ends - 1, sep_id, tf.where(columns == 0, cls_id, inner))
    mask = tf.ensure_shape(columns < ends, [None, length])
    token_ids = tf.where(mask, token_ids, pad_id)
    return {"token_ids": token_ids, "segment_ids": tf.zeros_like(token_ids), "padding_mask": mask}


def _kept(segments: tf.RaggedTensor, lengths: tf.Tensor, side: str) -> tf.RaggedTensor:
    """`lengths[i]` values of row i; what stands at `side` goes."""
    if side == "right":
        head = lengths
    elif side == "left":
        head = tf.zeros_like(lengths)
    else:
        # Sun et al. 2019 (arXiv 1905.05583), section 5.3.1: the first 128 and the last 382 of 510.
        head = (lengths + 2) // 4
    kept = tf.ragged.range(lengths, row_splits_dtype=tf.int64)  # [B, (kept)]

    def of_rows(values):
        return tf.repeat(values, lengths)

    gap = of_rows(segments.row_lengths() - lengths)
    places = kept.values + tf.where(kept.values >= of_rows(head), gap, 0)
    return kept.with_values(tf.gather(segments.values, places + of_rows(segments.row_starts())))
