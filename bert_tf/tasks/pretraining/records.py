"""Writes TFRecord files as google-research/bert does, and reads them in a reproducible order.

Glossary: `B` batch, `T` sequence length, `P` masked positions.

Reference: google-research/bert `create_pretraining_data.py` and `run_pretraining.py`.
"""

import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.files import atomic_path
from bert_tf.errors import DataError
from bert_tf.tasks.pretraining.checks import check_position, require
from bert_tf.tasks.pretraining.examples import PretrainingExample
from bert_tf.tasks.pretraining.features import example_features, serialize_features
from bert_tf.tasks.pretraining.input_files import find_files
from bert_tf.tasks.pretraining.record_files import check_records, feature_spec

SHUFFLE_BUFFER = 10_000  # records; about 10 MB at length 128


def write_pretraining_records(
    path: str | os.PathLike,
    examples: Iterable[PretrainingExample],
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> int:
    """Writes examples, padded to the given sizes, to a TFRecord file, and returns their number.

    The file is written atomically.
    """
    number = 0
    with atomic_path(path) as new, tf.io.TFRecordWriter(new) as writer:
        for example in examples:
            features = example_features(example, max_seq_length, max_predictions_per_seq)
            writer.write(serialize_features(features))
            number += 1
    return number


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

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        # Otherwise, Dataset.shuffle would also use the seed of tf.random.set_seed.
        tf.compat.v1.set_random_seed(1)
        seeds = tf.stack([tf.constant(seed, tf.int64), number])
        files = tf.constant(paths)
        if shuffle:
            files = tf.random.experimental.stateless_shuffle(files, seeds)
        records = tf.data.TFRecordDataset(files)
        if not by_file:  # all shards read the files in the same order
            records = records.shard(num_shards, shard_index)
        if shuffle:
            shuffle_seed = tf.random.stateless_uniform([], seeds, None, None, tf.int64)
            records = records.shuffle(shuffle_buffer, seed=shuffle_seed)
        return records

    def parse(records: tf.Tensor):
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
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )
