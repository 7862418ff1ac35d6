"""TFRecord files of pre-training examples: written, and read in a repeatable order.

The features are google-research/bert's, so files go both ways between the two programs.

Glossary: `B` batch, `T` sequence length, `P` masked positions.

Reference: google-research/bert `create_pretraining_data.py` and `run_pretraining.py`.
"""

import os
from collections.abc import Iterable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import ConfigError, DataError
from bert_tf.files import atomic_path, recover_around, without_staging
from bert_tf.tasks.pretraining.examples import PretrainingExample
from bert_tf.tasks.pretraining.features import example_features, serialize_features
from bert_tf.tasks.pretraining.record_files import check_records, feature_spec

SHUFFLE_BUFFER = 10_000  # records; about 10 MB at length 128


def write_pretraining_records(
    path: str | os.PathLike,
    examples: Iterable[PretrainingExample],
    max_seq_length: int,
    max_predictions_per_seq: int,
) -> int:
    """Writes examples to one TFRecord file, whole or not at all.

    Args:
        path: the file.
        examples: masked pairs.
        max_seq_length: the length that they are padded to.
        max_predictions_per_seq: the number of masked positions that they are padded to.

    Returns:
        How many there were.
    """
    number = 0
    with atomic_path(path) as new, tf.io.TFRecordWriter(new) as writer:
        for example in examples:
            writer.write(
                serialize_features(
                    example_features(example, max_seq_length, max_predictions_per_seq)
                )
            )
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
    """Reads pre-training batches in an order that only the arguments decide.

    Epoch e is a function of (seed, e), so the batches from step k on are the same whether they are
    read from step 0 or with `start_step=k`. With `repeat`, epochs follow each other without a gap
    and every batch is full. Shards are disjoint and together complete: whole files each, where
    `num_shards` divides their number, every `num_shards`-th record otherwise.

    All files are checked before the first batch: up to 1 GiB in all they are read whole and their
    checksums compared; of larger ones only the lengths and the first record are looked at, and
    `check_records` tells more when reading fails later.

    Args:
        input_files: TFRecord files, or glob patterns of them.
        batch_size: `B`, of this shard.
        max_seq_length: `T`, the length that the files were made with.
        max_predictions_per_seq: `P`, the number that the files were made with.
        seed: of the shuffling.
        shuffle: whether to shuffle files and records.
        shuffle_buffer: how many records are shuffled at a time.
        start_step: the batches before this one are left out, without being parsed.
        num_shards: how many readers share the files.
        shard_index: which of them this is.
        repeat: whether to go on without end; else one epoch, whose last batch may be smaller.

    Returns:
        A dataset of (features, labels): `token_ids`, `segment_ids` int32 `[B, T]`, `padding_mask`
        bool `[B, T]`, `masked_positions` int32 `[B, P]`; `masked_ids` int32 `[B, P]`,
        `masked_weights` float32 `[B, P]`, `next_sentence_labels` int32 `[B]`.

    Raises:
        DataError: a file is missing, empty of records, truncated, corrupt or of other lengths, or
            there are fewer examples than a batch takes.
        ConfigError: an argument is out of range.

    Example:
        >>> dataset = pretraining_records(["out-0.tfrecord"], 8, 128, 20)
        >>> features, labels = next(iter(dataset))
        >>> features["token_ids"].shape, labels["masked_ids"].shape
        (TensorShape([8, 128]), TensorShape([8, 20]))
    """
    if batch_size < 1 or num_shards < 1 or not 0 <= shard_index < num_shards or start_step < 0:
        raise ConfigError(
            "Expected batch_size and num_shards of at least 1, shard_index in [0, num_shards) and "
            f"start_step of at least 0. Received: batch_size={batch_size}, "
            f"num_shards={num_shards}, shard_index={shard_index}, start_step={start_step}."
        )
    paths = _expand(input_files)
    counts = check_records(paths, max_seq_length, max_predictions_per_seq, whole=None)
    by_file = num_shards > 1 and len(paths) % num_shards == 0
    if by_file:
        paths, counts = paths[shard_index::num_shards], counts[shard_index::num_shards]
        size = sum(counts)
    else:
        size = (sum(counts) - shard_index + num_shards - 1) // num_shards
    if size < (batch_size if repeat else 1):
        raise DataError(
            f"Expected at least a batch of {batch_size} examples in each of {num_shards} shards. "
            f"Received: {size} examples in shard {shard_index}. Take a smaller batch, fewer "
            "shards, or make more examples (a larger dupe_factor)."
        )
    spec = feature_spec(max_seq_length, max_predictions_per_seq)

    def epoch(number: tf.Tensor) -> tf.data.Dataset:
        # This function's graph has a seed of its own: else Dataset.shuffle would mix in the one
        # of tf.random.set_seed, and the order would depend on more than the arguments.
        tf.compat.v1.set_random_seed(1)
        seeds = tf.stack([tf.constant(seed, tf.int64), number])
        files = tf.constant(paths)
        if shuffle:
            files = tf.random.experimental.stateless_shuffle(files, seeds)
        records = tf.data.TFRecordDataset(files)
        if not by_file:
            # Every shard goes through the files in the same order and so counts alike.
            records = records.shard(num_shards, shard_index)
        if shuffle:
            records = records.shuffle(
                shuffle_buffer,
                seed=tf.random.stateless_uniform(
                    [], seeds, minval=None, maxval=None, dtype=tf.int64
                ),
            )
        return records

    def parse(records: tf.Tensor):
        return _model_inputs(tf.io.parse_example(records, spec))

    first = start_step * batch_size
    if repeat:
        first_epoch, skipped = divmod(first, size)
        later = tf.data.Dataset.range(first_epoch + 1, np.iinfo(np.int64).max)
        records = (
            tf.data.Dataset.range(first_epoch, first_epoch + 1)
            .flat_map(epoch)
            .skip(skipped)
            .concatenate(later.flat_map(epoch))
        )
    else:
        records = tf.data.Dataset.range(1).flat_map(epoch).skip(first)
    options = tf.data.Options()
    options.deterministic = True
    # Under a strategy of several workers Keras would shard once more what is sharded already.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return (
        records.batch(batch_size, drop_remainder=repeat)
        .map(parse, num_parallel_calls=tf.data.AUTOTUNE)
        .prefetch(tf.data.AUTOTUNE)
        .with_options(options)
    )


def _expand(input_files: Sequence[str | os.PathLike]) -> list[str]:
    paths: list[str] = []
    if isinstance(input_files, (str, os.PathLike)):
        input_files = [input_files]
    for pattern in map(os.fspath, input_files):
        recover_around(pattern)
        found = sorted(without_staging(tf.io.gfile.glob(pattern)))
        if not found:
            raise DataError(f"Expected TFRecord files. Received: {pattern!r}, which no file fits.")
        paths += found
    if not paths:
        raise DataError("Expected TFRecord files. Received: none.")
    return paths


def _model_inputs(parsed: dict[str, tf.Tensor]) -> tuple[dict, dict]:
    features = {
        "token_ids": tf.cast(parsed["input_ids"], tf.int32),
        "segment_ids": tf.cast(parsed["segment_ids"], tf.int32),
        "padding_mask": tf.cast(parsed["input_mask"], tf.bool),
        "masked_positions": tf.cast(parsed["masked_lm_positions"], tf.int32),
    }
    labels = {
        "masked_ids": tf.cast(parsed["masked_lm_ids"], tf.int32),
        "masked_weights": parsed["masked_lm_weights"],
        # [B, 1] -> [B]
        "next_sentence_labels": tf.cast(parsed["next_sentence_labels"][:, 0], tf.int32),
    }
    return features, labels
