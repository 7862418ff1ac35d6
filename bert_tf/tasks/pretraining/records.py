"""Checks TFRecord files of google-research/bert, and reads them in a reproducible order.

Glossary: `B` batch, `T` sequence length, `P` masked positions.

Reference: google-research/bert `run_pretraining.py`, `input_fn_builder`; the layout of a record in
tensorflow/core/lib/io/record_writer.h.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.file_errors import data_error
from bert_tf.base.files import recover_around, without_staging
from bert_tf.base.regular_files import open_regular, require_regular
from bert_tf.errors import DataError, require

CHECK_WHOLE_BYTES = 1 << 30  # files with this total size are read completely before they are used
SHUFFLE_BUFFER = 10_000  # records; about 10 MB at length 128
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
        expected = "have tf.train.Examples"
        raise data_error(path, expected, f"another first record, of {len(record)} bytes") from error
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


# Traced once: each file would take as long as this graph takes to trace.
@tf.function(input_signature=[tf.TensorSpec([], tf.string)], autograph=False)
def _count(path):
    return tf.data.TFRecordDataset(path).reduce(np.int64(0), lambda count, _: count + 1)


def _count_by_reading(path: str) -> int:
    try:
        return int(_count(path))
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


def pretraining_records(
    input_files: Sequence[str | os.PathLike],
    batch_size: int,
    max_seq_length: int,
    max_predictions_per_seq: int,
    seed: int = 0,
    shuffle: bool = True,
    shuffle_buffer: int = SHUFFLE_BUFFER,
    start_step: int = 0,
    num_shards: int = 1,
    shard_index: int = 0,
    repeat: bool = True,
) -> tf.data.Dataset:
    """Reads pre-training batches in an order that depends only on the arguments.

    Epoch e depends on (seed, e), so the batches after step k are the same with `start_step=k` and
    from step 0. Shards are disjoint: they consist of whole files if `num_shards` divides the number
    of files, otherwise of every `num_shards`-th record.

    First, all files are checked: lengths and first records and, up to 1 GiB, all checksums.

    Args:
        input_files: TFRecord files or glob patterns.
        batch_size: `B` of this shard.
        max_seq_length, max_predictions_per_seq: `T` and `P` of the files.
        seed: The seed of the shuffling.
        shuffle: Whether to shuffle files and records.
        shuffle_buffer: The number of records that are shuffled at a time.
        start_step: The number of batches that are skipped.
        num_shards, shard_index: The number of readers that share the files, and this one's index.
        repeat: Whether to repeat the data forever, in full batches. Otherwise there is one epoch,
            whose last batch may be smaller.

    Returns:
        A dataset of (features, labels): `token_ids`, `segment_ids` int32 `[B, T]`, `padding_mask`
        bool `[B, T]`, `masked_positions` int32 `[B, P]`; `masked_ids` int32 `[B, P]`,
        `masked_weights` float32 `[B, P]`, `next_sentence_labels` int32 `[B]`.

    Raises:
        ConfigError: If an argument is out of range.
        DataError: If a file is missing, broken or of other lengths, or if there are too few
            examples for a batch.

    Example:
        >>> dataset = pretraining_records(["out-0.tfrecord"], 8, 128, 20)
        >>> features, labels = next(iter(dataset))
        >>> features["token_ids"].shape, labels["masked_ids"].shape
        (TensorShape([8, 128]), TensorShape([8, 20]))
    """
    require(batch_size >= 1, "must be at least 1", batch_size=batch_size)
    check_position(start_step, num_shards, shard_index)
    paths = find_files(input_files)
    counts = check_records(paths, max_seq_length, max_predictions_per_seq, whole=None)
    by_file = num_shards > 1 and len(paths) % num_shards == 0
    if by_file:
        paths = paths[shard_index::num_shards]
        size = sum(counts[shard_index::num_shards])
    else:
        size = len(range(shard_index, sum(counts), num_shards))
    if size < (batch_size if repeat else 1):
        raise DataError(
            f"Each of {num_shards} shards must have at least a batch of {batch_size} examples. "
            f"Received: {size} examples in shard {shard_index}. Use a smaller batch, fewer shards, "
            "or more examples (a larger dupe_factor)."
        )
    spec = feature_spec(max_seq_length, max_predictions_per_seq)
    shard = None if by_file else (num_shards, shard_index)

    def epoch(number):
        return _epoch(number, paths, shard, seed, shuffle_buffer if shuffle else None)

    first_epoch, skipped = 0, start_step * batch_size
    if repeat:
        first_epoch, skipped = divmod(skipped, size)
    records = tf.data.Dataset.range(first_epoch, first_epoch + 1).flat_map(epoch).skip(skipped)
    if repeat:
        later = tf.data.Dataset.range(first_epoch + 1, np.iinfo(np.int64).max)
        records = records.concatenate(later.flat_map(epoch))
    options = tf.data.Options()
    options.deterministic = True
    # With several workers, Keras would otherwise shard the data again.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return (
        records.batch(batch_size, drop_remainder=repeat)
        .map(lambda batch: _parsed(batch, spec), num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def _epoch(number, paths, shard, seed, shuffle_buffer):
    """Returns the records of an epoch; `shard` is the number of parts of the files and the part."""
    # Otherwise, Dataset.shuffle would also use the seed of tf.random.set_seed.
    tf.compat.v1.set_random_seed(1)
    seeds = tf.stack([tf.constant(seed, tf.int64), number])
    files = tf.constant(paths)
    if shuffle_buffer is not None:
        files = tf.random.experimental.stateless_shuffle(files, seeds)
    records = tf.data.TFRecordDataset(files)
    if shard is not None:  # all shards read the files in the same order
        records = records.shard(*shard)
    if shuffle_buffer is None:
        return records
    shuffle_seed = tf.random.stateless_uniform([], seeds, None, None, tf.int64)
    return records.shuffle(shuffle_buffer, seed=shuffle_seed)


def _parsed(records, spec):
    """Returns features and labels of a batch of records."""
    parsed = tf.io.parse_example(records, spec)
    weights = parsed.pop("masked_lm_weights")
    values = {name: tf.cast(value, tf.int32) for name, value in parsed.items()}
    features = {
        "token_ids": values["input_ids"],
        "segment_ids": values["segment_ids"],
        "padding_mask": tf.cast(values["input_mask"], tf.bool),
        "masked_positions": values["masked_lm_positions"],
    }
    labels = {
        "masked_ids": values["masked_lm_ids"],
        "masked_weights": weights,
        "next_sentence_labels": values["next_sentence_labels"][:, 0],  # [B, 1] -> [B]
    }
    return features, labels


def find_files(input_files: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """Returns the files that match paths and glob patterns; those of a pattern are sorted.

    Raises:
        DataError: If there is no pattern, or if a pattern matches no file.
    """
    patterns = [input_files] if isinstance(input_files, (str, os.PathLike)) else input_files
    paths: list[str] = []
    for pattern in map(os.fspath, patterns):
        recover_around(pattern)
        exact = os.path.exists(pattern)
        found = [pattern] if exact else sorted(without_staging(tf.io.gfile.glob(pattern)))
        if not found:
            raise DataError(f"`input_files` must match existing files. Received: {pattern!r}")
        paths += found
    require(paths, "must have at least one file", DataError, input_files=[])
    return paths


def check_position(start_step: int, num_shards: int, shard_index: int) -> None:
    """Raises `ConfigError` for a position in the data that does not exist."""
    require(start_step >= 0, "must be at least 0", start_step=start_step)
    is_shard = 0 <= shard_index < num_shards
    require(is_shard, "must be in [0, num_shards)", shard_index=shard_index, num_shards=num_shards)
