"""Finds the input files of the readers, and checks where a reader begins."""

import os
from collections.abc import Sequence

import tensorflow as tf

from bert_tf.base.files import recover_around, without_staging
from bert_tf.errors import DataError, require


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
