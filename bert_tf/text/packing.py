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


def check_row_options(max_length, padding="longest", truncation="longest_first", least=2) -> None:
    """Raises `ConfigError` for invalid arguments of `Tokenizer.__call__`."""
    has_room, is_known = max_length is None or max_length >= least, truncation in TRUNCATIONS
    is_integer = isinstance(padding, numbers.Integral) and not isinstance(padding, bool)
    words = ("longest",) if max_length is None else ("longest", "max_length")
    is_valid = padding >= 1 if is_integer else padding in words
    if has_room and is_known and is_valid:
        return
    rule = f"must be at least {least}, to hold the special tokens"
    require(has_room, rule, max_length=max_length)
    require(is_known, f"must be one of {TRUNCATIONS}", truncation=truncation)
    rule = "must be 'longest', an integer of at least 1, or 'max_length' together with `max_length`"
    require(is_valid, rule, padding=padding, max_length=max_length)


def truncated_lengths(
    first: tf.Tensor, second: tf.Tensor, budget: int | tf.Tensor, truncation: str
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns how many tokens of each segment are kept, two int64 tensors `[B]`.

    Args:
        first: Lengths of the first segments, int64 `[B]`.
        second: Lengths of the second segments in the same form.
        budget: The maximum number of tokens of a row, without special tokens.
        truncation: "longest_first" (as in google-research/bert: the longer segment, or the second
            if both are equally long, loses its last token until both fit),
            "longest_first_huggingface" (as in Hugging Face's fast tokenizers: if each keeps half of
            an odd budget, the longer segment, or the second if both are equally long, keeps one
            more), "only_first" or "only_second".

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
            f"The segment that truncation={truncation!r} does not truncate must have at most",
            limit,
            "tokens. Received: row(s)",
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
    max_length: int | tf.Tensor | None,
    truncation: str,
    truncation_side: str = "right",
    separators: int = 1,
    has_segments: bool = True,
    repeats_cls: bool = False,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Joins segments into `[CLS] first [SEP]` or `[CLS] first [SEP] second [SEP]`.

    Args:
        first, second: Ids of the segments, ragged int32 `[B, (ids)]`; `second` may be None.
        cls_id, sep_id: The ids of these tokens.
        max_length: The maximum length of a row, special tokens included, or None.
        truncation: See `truncated_lengths`, also for the error.
        truncation_side: See `BertTokenizer`.
        separators: The number of special tokens between two segments; RoBERTa has 2.
        has_segments: Whether the segment ids of the second segment are 1.
        repeats_cls: Whether the second segment begins with the last of them, a `[CLS]`.

    Returns:
        Token ids and segment ids, both ragged int32 `[B, (T)]` with the same row splits.
    """
    length, second_length = first.row_lengths(), None if second is None else second.row_lengths()
    if max_length is not None and second is None:
        length = tf.minimum(length, max_length - 2)
    elif max_length is not None:
        budget = max_length - 2 - separators
        length, second_length = truncated_lengths(length, second_length, budget, truncation)
    # Rows are slices of one vector: [CLS], [SEP], those of a second segment, all ids of `first`,
    # and all of `second`. A slice is its first place and its length, both [B].
    special = tf.cast(tf.stack([cls_id, sep_id] * 2), first.dtype)
    one = tf.ones_like(length)
    cls, sep, second_cls, last_sep = (0 * one, one), (one, one), (2 * one, one), (3 * one, one)
    values = [special, first.values]
    slices = [cls, *_slices(first, length, truncation_side, 4), sep]
    if second is not None:
        start = 4 + tf.size(first.values, tf.int64)
        values.append(second.values)
        second_slices = _slices(second, second_length, truncation_side, start)
        between = [second_cls] if repeats_cls else [sep] * (separators - 1)
        slices += [*between, *second_slices, last_sep]
    places = _places(slices)
    token_ids = places.with_values(tf.gather(tf.concat(values, axis=0), places.values))
    if second is None or not has_segments:
        return token_ids, tf.zeros_like(token_ids)
    is_second = (places.values // 2 == 1) | (places.values >= start)
    return token_ids, token_ids.with_values(tf.cast(is_second, tf.int32))


def shortened(segments: tf.RaggedTensor, lengths: tf.Tensor, side: str) -> tf.RaggedTensor:
    """Returns `lengths[i]` values of row `i`: the others are removed at `side`."""
    places = _places(_slices(segments, lengths, side))
    return places.with_values(tf.gather(segments.values, places.values))


def _slices(segments, lengths, side, start=0) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """Returns the slices of `lengths[i]` values of row `i`, if the first row begins at `start`."""
    begins, gap = segments.row_starts() + start, segments.row_lengths() - lengths
    if side == "middle":
        # Sun et al. 2019 (arXiv 1905.05583), section 5.3.1: the first 128 and the last 382 of 510.
        head = (lengths + 2) // 4
        return [(begins, head), (begins + gap + head, lengths - head)]
    return [(begins if side == "right" else begins + gap, lengths)]


def _places(slices: list[tuple[tf.Tensor, tf.Tensor]]) -> tf.RaggedTensor:
    """Returns the places in the slices of each row, int64 `[B, (T)]`."""
    starts, lengths = tf.unstack(tf.transpose(slices, [1, 2, 0]))  # both [B, slices]
    places = tf.ragged.range(tf.reshape(starts, [-1]), tf.reshape(starts + lengths, [-1]))
    sizes = tf.reduce_sum(lengths, axis=1)
    return tf.RaggedTensor.from_row_lengths(places.values, sizes, validate=False)


def pad(
    token_ids: tf.RaggedTensor,
    segment_ids: tf.RaggedTensor,
    pad_id: int,
    length: int | tf.Tensor | None,
    multiple: int | tf.Tensor,
) -> dict[str, tf.Tensor]:
    """Pads ragged int32 rows `[B, (T)]` to dense model inputs; `pad_id` is the padding of tokens.

    Returns `token_ids` and `segment_ids`, int32 `[B, T]`, and `padding_mask`, bool `[B, T]`. T is
    `length`, or without one the length of the longest row, rounded up to a multiple of `multiple`.
    """
    lengths = token_ids.row_lengths()
    if length is None:
        longest = tf.reduce_max(tf.concat([lengths, [0]], axis=0))
        width = -(-longest // multiple) * multiple
    else:
        width = tf.cast(length, tf.int64)
    shape = tf.stack([-1, width])
    padded = {
        "token_ids": token_ids.to_tensor(pad_id, shape=shape),
        "segment_ids": segment_ids.to_tensor(0, shape=shape),
        "padding_mask": tf.sequence_mask(lengths, width),
    }
    shape = [None, tf.get_static_value(length)]
    return {name: tf.ensure_shape(value, shape) for name, value in padded.items()}
