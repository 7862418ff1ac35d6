"""Which attention heads of which blocks a network lacks: Hugging Face's `pruned_heads`."""

import numbers
from collections.abc import Mapping
from typing import Any

from bert_tf.errors import ConfigError

_MOST_DIGITS = 9  # of a block's number: Python refuses to read thousands of them


def checked_pruned_heads(
    pruned_heads: Mapping | None, num_layers: int, num_heads: int
) -> dict[int, tuple[int, ...]]:
    """A mapping from blocks to heads in one form, whatever way it was written.

    Args:
        pruned_heads: Block numbers, or such as the strings of a JSON object, to lists of heads;
            None for none.
        num_layers: L.
        num_heads: N, of a block that lacks none.

    Returns:
        Blocks in their order to sorted heads; no block without any.

    Raises:
        ConfigError: If it is no such mapping, a number is out of range or stands twice, or a block
            is left without a head.
    """
    if pruned_heads is None:
        return {}
    if not isinstance(pruned_heads, Mapping):
        raise ConfigError(
            "`pruned_heads` must be a mapping from block numbers to lists of heads. "
            f"Received: pruned_heads={pruned_heads!r}"
        )
    checked = {}
    for key, heads in pruned_heads.items():
        block = _number(key)
        if not _is_index(block, num_layers) or int(block) in checked:
            raise ConfigError(
                f"`pruned_heads` must name blocks in [0, {num_layers}), each once. "
                f"Received: pruned_heads={dict(pruned_heads)!r}"
            )
        if not _are_heads(heads, num_heads):
            raise ConfigError(
                f"`pruned_heads` must list heads in [0, {num_heads}), each once. "
                f"Received for block {block}: {heads!r}"
            )
        if len(heads) == num_heads:
            raise ConfigError(
                f"`pruned_heads` must leave every block a head of its {num_heads}. "
                f"Received for block {block}: {heads!r}"
            )
        checked[int(block)] = tuple(sorted(map(int, heads)))
    return {block: checked[block] for block in sorted(checked) if checked[block]}


def _number(key) -> Any:
    """What a key of a JSON object says; any other key as it is."""
    is_number = isinstance(key, str) and key.isascii() and key.isdigit()
    return int(key) if is_number and len(key) <= _MOST_DIGITS else key


def _is_index(value, size) -> bool:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_integer and 0 <= value < size


def _are_heads(heads, num_heads) -> bool:
    return (
        isinstance(heads, (list, tuple, set, frozenset))
        and all(_is_index(head, num_heads) for head in heads)
        and len(set(heads)) == len(heads)
    )
