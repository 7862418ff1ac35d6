"""Checks TFRecord files of pre-training examples.

Reference: google-research/bert `run_pretraining.py`, `input_fn_builder`; the layout of a record in
tensorflow/core/lib/io/record_writer.h.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.regular_files import open_regular, require_regular
from bert_tf.errors import DataError

CHECK_WHOLE_BYTES = 1 << 30  # files with this total size are read completely before they are used
_HEADER_BYTES, _FOOTER_BYTES = 12, 4  # length and its checksum; the data's checksum


def feature_spec(
    max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, tf.io.FixedLenFeature]:
    """Returns the features of the original for `tf.io.parse_example`."""
    tokens = tf.io.FixedLenFeature([max_seq_length], tf.int64)
    masked = tf.io.FixedLenFeature([max_predictions_per_seq], tf.int64)
    return {
        **dict.fromkeys(("input_ids", "input_mask", "segment_ids"), tokens),
        **dict.fromkeys(("masked_lm_positions", "masked_lm_ids"), masked),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([max_predictions_per_seq], tf.float32),
    }


def check_records(
    input_files: Sequence[str | os.PathLike],
    max_seq_length: int,
    max_predictions_per_seq: int,
    whole: bool | None = True,
) -> list[int]:
    """Checks TFRecord files and returns the number of records of each file.

    Args:
        input_files: The files.
        max_seq_length, max_predictions_per_seq: The sizes of the examples.
        whole: Whether to read the files completely and compare checksums. None: up to 1 GiB.

    Raises:
        DataError: If a file cannot be read, is broken or of other lengths, or there is no record.
    """
    paths = [os.fspath(path) for path in input_files]
    try:
        if whole is None:
            whole = sum(tf.io.gfile.stat(path).length for path in paths) <= CHECK_WHOLE_BYTES
        counts = []
        for path in filter(os.path.exists, paths):  # not remote ones
            require_regular(path)
        for path in paths:
            local = os.path.exists(path)  # of other files, the headers are not read alone
            # Checked before TensorFlow reads, which allocates any length that a header gives,
            # and accepts a file that ends inside of a header.
            count = _count_by_lengths(path) if local else 0
            _check_first(path, max_seq_length, max_predictions_per_seq)
            counts.append(_count_by_reading(path) if whole or not local else count)
    except tf.errors.OpError as error:
        raise DataError(f"TFRecord files must be readable. Received: {error.message}") from error
    except OSError as error:
        received = f"{error.strerror}, {error.filename}"
        raise DataError(f"TFRecord files must be readable. Received: {received}") from None
    if not sum(counts):
        raise DataError(
            f"`input_files` must have examples. Received: no record in {', '.join(paths)}. Make "
            "them with bert-tf create_pretraining_data."
        )
    return counts


def _check_first(path: str, max_seq_length: int, max_predictions_per_seq: int) -> None:
    """Compares the features of the first record with the expected ones."""
    record = next(iter(_read(path)), None)
    if record is None:
        return
    try:
        features = tf.train.Example.FromString(record).features.feature
    except Exception as error:  # protobuf's DecodeError, which has no public name
        raise DataError(
            f"{path} must have tf.train.Examples. Received: another first record, of "
            f"{len(record)} bytes"
        ) from error
    expected = (
        f"{path} must have examples with max_seq_length={max_seq_length} and "
        f"max_predictions_per_seq={max_predictions_per_seq}. Received: "
    )
    for name, feature in feature_spec(max_seq_length, max_predictions_per_seq).items():
        if name not in features:
            raise DataError(
                f"{expected}a record without {name!r}; it has {sorted(features)}. Make the file "
                "with bert-tf create_pretraining_data."
            )
        kind = "float_list" if feature.dtype == tf.float32 else "int64_list"
        size = len(getattr(features[name], kind).value)
        if [size] != list(feature.shape):
            raise DataError(
                f"{expected}{size} values of {name!r} in the first record. Pass the numbers with "
                "which the file was made, or make it again."
            )


def _read(path: str) -> Iterator[bytes]:
    """Yields the records of a file and compares their checksums."""
    number = 0
    try:
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator():
            yield record
            number += 1
    except (tf.errors.DataLossError, tf.errors.OutOfRangeError) as error:
        raise _broken(path, number) from error


def _count_by_reading(path: str) -> int:
    try:
        return int(tf.data.TFRecordDataset(path).reduce(np.int64(0), lambda count, _: count + 1))
    except tf.errors.DataLossError:
        for _ in _read(path):  # again, one by one: raises an error that names the record
            pass
        raise


def _count_by_lengths(path: str) -> int:
    """Counts records by their headers, without reading their data."""
    size = os.path.getsize(path)
    count = position = 0
    with open_regular(path) as file:
        while position < size:
            file.seek(position)
            header = file.read(_HEADER_BYTES)
            position += _HEADER_BYTES + int.from_bytes(header[:8], "little") + _FOOTER_BYTES
            if position > size:
                raise _broken(path, count)
            count += 1
    return count


def _broken(path: str, number: int) -> DataError:
    return DataError(
        f"{path} must be a complete TFRecord file. Received: {number} good records and then one "
        "that is truncated or corrupt. Copy the file again, or make it again with "
        "bert-tf create_pretraining_data."
    )
