"""Checks of arguments."""

from bert_tf.errors import require


def check_position(start_step: int, num_shards: int, shard_index: int) -> None:
    """Raises `ConfigError` for a position in the data that does not exist."""
    require(start_step >= 0, "must be at least 0", start_step=start_step)
    is_shard = 0 <= shard_index < num_shards
    require(is_shard, "must be in [0, num_shards)", shard_index=shard_index, num_shards=num_shards)
