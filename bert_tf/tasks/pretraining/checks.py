"""Checks of arguments."""

from bert_tf.errors import ConfigError


def require(holds: object, rule: str, **received) -> None:
    """Raises `ConfigError` with the rule and the received arguments unless the rule holds."""
    if not holds:
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ConfigError(f"{rule}. Received: {values}")


def check_position(start_step: int, num_shards: int, shard_index: int) -> None:
    """Raises `ConfigError` for a position in the data that does not exist."""
    require(
        start_step >= 0 and num_shards >= 1 and 0 <= shard_index < num_shards,
        "`start_step` must be at least 0 and `shard_index` must be in [0, num_shards)",
        start_step=start_step,
        num_shards=num_shards,
        shard_index=shard_index,
    )
