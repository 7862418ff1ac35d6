"""Checks which attention heads are pruned from which blocks: Hugging Face's `pruned_heads`."""

import numbers
from collections.abc import Mapping

from bert_tf.errors import ConfigError, require, user_error

_MOST_DIGITS = 9  # of a block's number; Python refuses to parse thousands of digits


def checked_pruned_heads(
    pruned_heads: Mapping | None, num_layers: int, num_heads: int
) -> dict[int, tuple[int, ...]]:
    """Checks a mapping from blocks to pruned heads; returns both sorted, without empty blocks.

    Args:
        pruned_heads: A mapping from block numbers, or their strings as in a JSON object, to lists
            of heads. None for no pruned heads.
        num_layers, num_heads: `L`, and `N` of a block without pruned heads.

    Raises:
        ConfigError: If it is not such a mapping, a number is out of range or occurs twice, or a
            block has no heads left.
    """
    if pruned_heads is None:
        return {}
    rule = "must be a mapping from block numbers to lists of heads"
    require(isinstance(pruned_heads, Mapping), rule, pruned_heads=pruned_heads)
    checked = {}
    for key, heads in pruned_heads.items():
        is_number = isinstance(key, str) and key.isascii() and key.isdigit()
        block = int(key) if is_number and len(key) <= _MOST_DIGITS else key
        is_new_block = _is_index(block, num_layers) and int(block) not in checked
        rule = f"must name blocks in [0, {num_layers}), each once"
        require(is_new_block, rule, pruned_heads=dict(pruned_heads))
        is_list = isinstance(heads, (list, tuple, set, frozenset))
        are_heads = is_list and all(_is_index(head, num_heads) for head in heads)
        if not are_heads or len(set(heads)) < len(heads):
            expected = f"list heads in [0, {num_heads}), each once"
            received = f"pruned_heads[{block}]={heads!r}"
            raise user_error("`pruned_heads`", expected, received, ConfigError)
        if len(heads) == num_heads:
            expected = f"leave at least one of the {num_heads} heads of every block"
            received = f"pruned_heads[{block}]={heads!r}"
            raise user_error("`pruned_heads`", expected, received, ConfigError)
        checked[int(block)] = tuple(sorted(map(int, heads)))
    return {block: checked[block] for block in sorted(checked) if checked[block]}


def _is_index(value, size) -> bool:
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return is_integer and 0 <= value < size
