"""Packs several short sequences into one row, so that batches of static shape have little padding.

Glossary: `E` sequences (examples), `B` rows, `T` row length, `S` maximum number of sequences of a
row, `P` and `Q` masked positions of a row and of a sequence, `R` real tokens, `M` masked tokens.

Reference: Krell et al., "Efficient Sequence Packing without Cross-contamination", arXiv 2107.02027.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import numpy_function
from bert_tf.errors import DataError, check_limits

OPEN_ROWS = 64
Features = dict[str, tf.Tensor]


class Places(NamedTuple):
    """The places of sequences in rows, all int32 `[E]`."""

    rows: np.ndarray
    columns: np.ndarray  # the first column of each sequence in its row
    slots: np.ndarray  # the index of each sequence among those of its row


def first_fit(
    lengths: np.ndarray,
    row_length: int,
    max_sequences: int,
    predictions: np.ndarray | None = None,
    max_predictions: int | None = None,
    open_rows: int = OPEN_ROWS,
) -> Places:
    """Finds a row for every sequence: the first open row with enough space, or a new row.

    Args:
        lengths: The number of tokens of each sequence, special ones included, int `[E]`.
        row_length, max_sequences, max_predictions: `T`, `S` and `P`.
        predictions: The number of masked positions of each sequence, int `[E]`. None for 0.
        open_rows: The maximum number of open rows. If one more is needed, the fullest is closed.

    Raises:
        DataError: If a sequence does not fit into an empty row.

    Example:
        >>> first_fit(np.array([5, 6, 3]), row_length=8, max_sequences=4).rows
        array([0, 1, 0], dtype=int32)
    """
    lengths = np.asarray(lengths)
    predictions = np.zeros_like(lengths) if predictions is None else np.asarray(predictions)
    max_predictions = max_predictions or 0
    if np.any(lengths > row_length) or np.any(predictions > max_predictions):
        raise DataError(
            f"A sequence must have at most {row_length} tokens and {max_predictions} predictions, "
            f"to fit into a row. Received: {lengths.max()} tokens and {predictions.max()} "
            "predictions."
        )
    places = np.zeros([3, len(lengths)], np.int32)
    # For each open row: its number, free columns, free slots, free predictions.
    rows: list[list[int]] = []
    count = 0
    for index, (length, predicted) in enumerate(zip(lengths.tolist(), predictions.tolist())):
        for row in rows:
            if row[1] >= length and row[2] and row[3] >= predicted:
                break
        else:
            if len(rows) == open_rows:
                rows.remove(min(rows, key=lambda row: row[1]))
            row = [count, row_length, max_sequences, max_predictions]
            rows.append(row)
            count += 1
        places[:, index] = row[0], row_length - row[1], max_sequences - row[2]
        row[1] -= length
        row[2] -= 1
        row[3] -= predicted
        if not (row[1] and row[2]):
            rows.remove(row)
    return Places(*places)


def place_in_rows(
    features: Features,
    labels: Features,
    places: Places,
    num_rows: tf.Tensor | int,
    row_length: int,
    max_sequences: int,
    max_predictions: int,
    pad_token_id: int = 0,
) -> tuple[Features, Features]:
    """Puts sequences into the rows that `first_fit` found, in the graph.

    Args:
        features: `token_ids` and `segment_ids` int32 and `padding_mask` bool `[E, *]`, with
            sequences that begin in column 0, and `masked_positions` int32 `[E, Q]`.
        labels: `masked_ids` int32 and `masked_weights` float32 `[E, Q]`, `next_sentence_labels`
            int32 `[E]` and, optionally, `next_sentence_weights` float32 `[E]`.
        places: The `Places` of the sequences.
        num_rows, row_length, max_sequences, max_predictions: `B`, `T`, `S` and `P`.
        pad_token_id: The id at padded positions.

    Returns:
        Features and labels of rows: the same keys with shapes `[B, T]` and `[B, P]`, and int32
        `sequence_ids` `[B, T]` (from 1; 0 is padding), `positions` `[B, T]` (from 0 in each
        sequence) and `sequence_starts` `[B, S]`. `next_sentence_labels` int32 and
        `next_sentence_weights` float32 are `[B, S]`, 0 at unused places.
    """
    rows, columns, slots = places
    tokens = tf.cast(tf.where(features["padding_mask"]), tf.int32)  # [R, 2]: sequence, column
    sequences, within = tokens[:, 0], tokens[:, 1]
    first_columns = tf.gather(columns, sequences)
    token_places = tf.stack([tf.gather(rows, sequences), first_columns + within], axis=1)

    def spread(values, places, width, default=0):
        empty = tf.fill([num_rows, width], tf.cast(default, values.dtype))
        return tf.tensor_scatter_nd_update(empty, places, values)

    def at_tokens(values, default=0):
        return spread(values, token_places, row_length, default)

    # The masked positions of a row, in the order of its sequences.
    used = tf.cast(tf.where(labels["masked_weights"] > 0), tf.int32)  # [M, 2]
    order = tf.argsort(tf.gather(rows * max_sequences + slots, used[:, 0]), stable=True)
    used = tf.gather(used, order)
    mask_rows = tf.gather(rows, used[:, 0])
    first = tf.searchsorted(mask_rows, mask_rows)
    mask_places = tf.stack([mask_rows, tf.range(tf.size(mask_rows)) - first], axis=1)

    def at_masks(values):
        return spread(values, mask_places, max_predictions)

    def at_slots(values):
        return spread(values, tf.stack([rows, slots], axis=1), max_sequences)

    sequence_ids = at_tokens(tf.gather(slots, sequences) + 1)
    positions = tf.gather_nd(features["masked_positions"], used) + tf.gather(columns, used[:, 0])
    next_weights = labels.get("next_sentence_weights", tf.ones(tf.shape(rows)))
    new_features = {
        "token_ids": at_tokens(tf.gather_nd(features["token_ids"], tokens), pad_token_id),
        "segment_ids": at_tokens(tf.gather_nd(features["segment_ids"], tokens)),
        "padding_mask": sequence_ids > 0,
        "sequence_ids": sequence_ids,
        "positions": at_tokens(within),
        "masked_positions": at_masks(positions),
        "sequence_starts": at_slots(columns),
    }
    new_labels = {
        "masked_ids": at_masks(tf.gather_nd(labels["masked_ids"], used)),
        "masked_weights": at_masks(tf.gather_nd(labels["masked_weights"], used)),
        "next_sentence_labels": at_slots(labels["next_sentence_labels"]),
        "next_sentence_weights": at_slots(next_weights),
    }
    return new_features, new_labels


def pack_rows(
    dataset: tf.data.Dataset,
    batch_size: int,
    row_length: int,
    max_sequences: int,
    max_predictions: int,
    window: int = 1024,
    pad_token_id: int = 0,
    drop_remainder: bool = True,
) -> tf.data.Dataset:
    """Packs the examples of a dataset, such as that of `pretraining_records`, into rows.

    The examples of each window are packed together. No sequence is lost or truncated.

    Args:
        dataset: Batches of (features, labels); see `place_in_rows`.
        batch_size, row_length, max_sequences, max_predictions: `B`, `T`, `S` and `P`.
        window: The number of sequences that are packed together. More leave less padding.
        pad_token_id: The id at padded positions.
        drop_remainder: Whether to drop a last batch of fewer rows.

    Returns:
        A dataset of (features, labels) with static shapes `[B, T]`, `[B, S]` and `[B, P]`.

    Raises:
        ConfigError: If a size is below 1.

    Example:
        >>> from bert_tf.tasks.pretraining.records import pretraining_records
        >>> rows = bert_tf.inputs.pack_rows(
        ...     pretraining_records("out-0.tfrecord", 8, 128, 20),
        ...     batch_size=2,
        ...     row_length=128,
        ...     max_sequences=8,
        ...     max_predictions=20,
        ... )
        >>> next(iter(rows))[0]["token_ids"].shape
        TensorShape([2, 128])
    """
    check_limits(batch_size=batch_size, row_length=row_length, max_sequences=max_sequences)
    check_limits(max_predictions=max_predictions, window=window)

    def fit(lengths, predictions):
        return first_fit(lengths, row_length, max_sequences, predictions, max_predictions)

    def pack(features: Features, labels: Features) -> Any:
        lengths = tf.math.count_nonzero(features["padding_mask"], axis=1)
        predictions = tf.math.count_nonzero(labels["masked_weights"] > 0, axis=1)
        places = numpy_function(fit, [lengths, predictions], [tf.int32] * 3)
        places = Places(*(tf.ensure_shape(field, [None]) for field in places))
        num_rows = tf.reduce_max(places.rows) + 1
        sizes = (row_length, max_sequences, max_predictions, pad_token_id)
        return place_in_rows(features, labels, places, num_rows, *sizes)

    rows = dataset.unbatch().batch(window).map(pack).unbatch()
    return rows.batch(batch_size, drop_remainder=drop_remainder)


def padding_share(dataset: tf.data.Dataset, num_batches: int) -> float:
    """Returns the fraction of positions that are padding in the first batches of a dataset.

    Args:
        dataset: Batches of (features, labels), with `features["padding_mask"]` bool `[B, T]`.
        num_batches: The number of batches to count.

    Returns:
        The fraction, from 0 to 1; 0 without batches.

    Example:
        >>> from bert_tf.tasks.pretraining.records import pretraining_records
        >>> share = bert_tf.inputs.padding_share(
        ...     pretraining_records("out-0.tfrecord", 8, 128, 20), 2
        ... )
        >>> 0 < share < 1
        True
    """
    real = positions = 0
    for features, _ in dataset.take(num_batches):
        mask = features["padding_mask"].numpy()
        real += int(mask.sum())
        positions += mask.size
    return 1 - real / positions if positions else 0.0
