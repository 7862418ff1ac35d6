"""Which attention heads to prune."""

from collections.abc import Mapping

import numpy as np

from bert_tf.errors import UserError
from bert_tf.families.pruned_heads import checked_pruned_heads


def least_important_heads(
    importance: np.ndarray,
    count: int | None = None,
    share: float | None = None,
    pruned_heads: Mapping | None = None,
) -> dict[int, list[int]]:
    """Returns the least important heads over all blocks. Every block keeps its best head.

    Args:
        importance: `[L, N]`, as `head_importance` returns it.
        count: The number of heads that are pruned afterwards, including `pruned_heads`.
        share: The same as a share of all L·N heads, rounded.
        pruned_heads: The configuration's `pruned_heads`.

    Returns:
        The heads to prune now by block, as `prune_heads` takes them.

    Raises:
        UserError: If not exactly one of `count` and `share` is given, it is out of range, or the
            importance is not finite or not `[L, N]`.

    Example:
        >>> importance = np.array([[0.9, 0.1, 0.2], [0.3, 0.8, 0.7]])
        >>> bert_tf.adapt.least_important_heads(importance, count=3)
        {0: [1, 2], 1: [0]}

    Reference: Michel et al. 2019 (arXiv 1905.10650), section 4.
    """
    importance = np.asarray(importance, np.float64)
    if importance.ndim != 2 or not importance.size or not np.isfinite(importance).all():
        raise UserError(
            "`importance` must be a finite number for every head of every block, [L, N]. "
            f"Received: shape={list(importance.shape)}"
        )
    num_layers, num_heads = importance.shape
    pruned = checked_pruned_heads(pruned_heads, num_layers, num_heads)
    if (count is None) == (share is None):
        raise UserError(
            f"Exactly one of `count` and `share` must be given. Received: {count=}, {share=}"
        )
    wanted = round(share * importance.size) if count is None else count
    most = num_layers * (num_heads - 1)
    if not 0 <= wanted <= most:
        raise UserError(
            f"`count` must be at most {most} of {importance.size} heads, and `share` their share, "
            f"so that every block keeps one. Received: {count=}, {share=}"
        )
    missing = wanted - sum(map(len, pruned.values()))
    if missing < 0:
        raise UserError(
            "`count` or `share` must include the heads that are pruned already: "
            f"{dict(pruned)}. Received: {count=}, {share=}"
        )
    gone = {block: set(pruned.get(block, ())) for block in range(num_layers)}
    for place in np.argsort(importance, axis=None, kind="stable"):
        block, head = divmod(int(place), num_heads)
        if missing and len(gone[block]) < num_heads - 1 and head not in gone[block]:
            gone[block].add(head)
            missing -= 1
    chosen = {block: sorted(gone[block].difference(pruned.get(block, ()))) for block in gone}
    return {block: heads for block, heads in chosen.items() if heads}
