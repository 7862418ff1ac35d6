"""Builds model inputs from segments: truncation, special tokens and padding of ragged ids.

Glossary: `B` rows, `T` length of the longest row (or the requested length).

Reference: google-research/bert `run_classifier.py`.
"""

import numbers

import tensorflow as tf

from bert_tf.base.assertions import assert_that
from bert_tf.errors import require

TRUNCATIONS = ("longest_first", "longest_first_huggingface", "only_first", "only_second")
TRUNCATION_SIDES = ("right", "left", "middle")


def check_max_length(max_length: int | None, pairs: bool, separators: int = 1) -> None:
    """Checks that rows of one segment, or of two, have room for their special tokens.

    `separators` is the number of `[SEP]` between two segments.

    Raises:
        ConfigError: If they have not.
    """
    least = 2 + separators if pairs else 2  # the special tokens
    has_room = max_length is None or max_length >= least
    rule = f"must be at least {least}, to hold the special tokens"
    require(has_room, rule, max_length=max_length)


def check_options(
    max_length: int | None, pairs: bool, padding: str | int, truncation: str, separators: int = 1
) -> None:
    """Checks the arguments of `BertTokenizer.__call__`.

    Raises:
        ConfigError: If one has an invalid value.
    """
    check_max_length(max_length, pairs, separators)
    require(truncation in TRUNCATIONS, f"must be one of {TRUNCATIONS}", truncation=truncation)
    is_integer = isinstance(padding, numbers.Integral) and not isinstance(padding, bool)
    words = ("longest",) if max_length is None else ("longest", "max_length")
    is_valid = padding >= 1 if is_integer else padding in words
    rule = "must be 'longest', an integer of at least 1, or 'max_length' together with `max_length`"
    require(is_valid, rule, padding=padding, max_length=max_length)


def truncated_lengths(
    first: tf.Tensor, second: tf.Tensor, budget: int, truncation: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns how many tokens of each segment are kept, two int64 tensors `[B]`.

    Args:
        first: Lengths of the first segments, int64 `[B]`.
        second: Lengths of the second segments in the same form.
        budget: The maximum number of tokens of a row, without special tokens.
        truncation: "longest_first" (as google-research/bert: the longer segment, of equal ones the
            second, loses its last token until both fit), "longest_first_huggingface" (as fast
            tokenizers there: if the two keep half of an odd budget each, the one that was longer,
            of equal ones the second, keeps one more), "only_first" or "only_second".

    Raises:
        tf.errors.InvalidArgumentError: If the segment that is not truncated exceeds the budget.
    """
    limit = tf.cast(budget, first.dtype)
    if truncation.startswith("longest_first"):
        share = limit - limit // 2  # of the first segment if both are too long
        if truncation == "longest_first_huggingface":
            share = tf.where(first > second, share, limit // 2)
        kept = tf.minimum(first, tf.maximum(share, limit - second))
        return kept, tf.minimum(second, limit - kept)
    whole = second if truncation == "only_first" else first
    fits = assert_that(
        tf.reduce_all(whole <= limit),
        [
            f"The segment that truncation={truncation!r} does not truncate must have at most "
            f"{budget} tokens. Received: row(s)",
            tf.where(whole > limit)[:, 0],
            "with lengths",
            tf.boolean_mask(whole, whole > limit),
            "Raise max_length or use truncation='longest_first'.",
        ],
    )
    with tf.control_dependencies(fits):
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
    separators: int = 1,
    has_segments: bool = True,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins segments into `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.

    Args:
        first: Ids of the first segments, ragged int32 `[B, (ids)]`.
        second: Ids of the second segments in the same form, or None.
        cls_id, sep_id: The ids of these tokens.
        max_length: The maximum length of a row, special tokens included, or None.
        truncation: See `truncated_lengths`, also for the error.
        truncation_side: See `BertTokenizer`.
        separators: The number of `[SEP]` between two segments; RoBERTa has 2.
        has_segments: Whether the segment ids of the second segment are 1.

    Returns:
        Token ids and segment ids, both ragged int32 `[B, (T)]` with the same row splits.
    """
    if max_length is not None and second is None:
        kept = tf.minimum(first.row_lengths(), max_length - 2)
        first = shortened(first, kept, truncation_side)
    elif max_length is not None:
        lengths = (first.row_lengths(), second.row_lengths())
        kept = truncated_lengths(*lengths, max_length - 2 - separators, truncation)
        first = shortened(first, kept[0], truncation_side)
        second = shortened(second, kept[1], truncation_side)
    rows = first.nrows()
    cls, sep = (
        tf.RaggedTensor.from_uniform_row_length(tf.fill([rows], token_id), 1, nrows=rows)
        for token_id in (cls_id, sep_id)
    )
    pair = [] if second is None else [*[sep] * (separators - 1), second, sep]
    joined = tf.concat([cls, first, sep, *pair], axis=1)
    token_ids = tf.RaggedTensor.from_row_splits(joined.values, joined.row_splits, validate=False)
    if second is None or not has_segments:
        return token_ids, tf.zeros_like(token_ids)
    lengths = token_ids.row_lengths()
    positions = tf.range(tf.reduce_sum(lengths)) - tf.repeat(token_ids.row_starts(), lengths)
    boundary = tf.repeat(first.row_lengths() + 1 + separators, lengths)
    return token_ids, token_ids.with_values(tf.cast(positions >= boundary, tf.int32))


def pad(
    token_ids: tf.RaggedTensor,
    segment_ids: tf.RaggedTensor,
    pad_id: int,
    length: int | None,
    multiple: int,
) -> dict[str, tf.Tensor]:
    """Pads ragged rows to dense model inputs.

    Args:
        token_ids, segment_ids: Ragged int32 `[B, (T)]`.
        pad_id: The token id at padded positions. The segment id there is 0.
        length: `T`. None for the length of the longest row, rounded up to a multiple of `multiple`.

    Returns:
        `token_ids` and `segment_ids`, int32 `[B, T]`, and `padding_mask`, bool `[B, T]`.
    """
    lengths = token_ids.row_lengths()
    width = _width(lengths, length, multiple)
    shape = tf.stack([-1, width])
    padded = {
        "token_ids": token_ids.to_tensor(pad_id, shape=shape),
        "segment_ids": segment_ids.to_tensor(0, shape=shape),
        "padding_mask": tf.sequence_mask(lengths, width),
    }
    return {name: tf.ensure_shape(value, [None, length]) for name, value in padded.items()}


def pack_and_pad(
    segments: tf.RaggedTensor,
    cls_id: int,
    sep_id: int,
    pad_id: int,
    max_length: int | None,
    length: int | None,
    multiple: int,
) -> dict[str, tf.Tensor]:
    """Does `pack` and `pad` of one segment, truncated on the right, with a tenth of their ops.

    For one short text, their ops take longer than tokenization.
    """
    lengths = segments.row_lengths() + 2  # [B], with the special tokens
    if max_length is not None:
        lengths = tf.minimum(lengths, max_length)
    width = _width(lengths, length, multiple)
    inner = segments.to_tensor(pad_id, shape=tf.stack([-1, tf.maximum(width - 2, 0)]))
    inner = tf.pad(inner, [[0, 0], [1, 1]], constant_values=pad_id)[:, :width]  # [B, T]
    columns, ends = tf.range(width), lengths[:, tf.newaxis]
    token_ids = tf.where(columns == ends - 1, sep_id, tf.where(columns == 0, cls_id, inner))
    mask = tf.ensure_shape(columns < ends, [None, length])
    token_ids = tf.where(mask, token_ids, pad_id)
    return {"token_ids": token_ids, "segment_ids": tf.zeros_like(token_ids), "padding_mask": mask}


def _width(lengths: tf.Tensor, length: int | None, multiple: int) -> tf.Tensor:
    if length is not None:
        return tf.constant(length, tf.int64)
    longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
    return -(-longest // multiple) * multiple if multiple > 1 else longest


def shortened(segments: tf.RaggedTensor, lengths: tf.Tensor, side: str) -> tf.RaggedTensor:
    """Returns `lengths[i]` values of row `i`: the others are removed at `side`."""
    if side == "right":
        head = lengths
    elif side == "left":
        head = tf.zeros_like(lengths)
    else:
        # Sun et al. 2019 (arXiv 1905.05583), section 5.3.1: the first 128 and the last 382 of 510.
        head = (lengths + 2) // 4
    kept = tf.ragged.range(lengths, row_splits_dtype=tf.int64)  # [B, (kept)]
    gap = segments.row_lengths() - lengths
    head, gap, starts = (tf.repeat(of, lengths) for of in (head, gap, segments.row_starts()))
    places = starts + kept.values + tf.where(kept.values >= head, gap, 0)
    return kept.with_values(tf.gather(segments.values, places))
