"""Pairs that do not belong together, drawn from pairs that do."""

import random
from collections.abc import Sequence

from bert_tf.errors import DataError, UserError


def negative_pairs(
    positives: Sequence[tuple[str, str]], per_pair: int = 1, seed: int = 0
) -> list[tuple[str, str]]:
    """For every pair, pairs of its first text with second texts of others.

    Args:
        positives: Pairs that belong together; a first text may have several second ones.
        per_pair: How many for each.
        seed: Of the draw.

    Returns:
        `len(positives) * per_pair` pairs, in the order of `positives`; none is a positive one, and
        those of one pair differ.

    Raises:
        DataError: If a first text goes with too many of the second texts to find others.

    Example:
        >>> negative_pairs([("capital of France?", "Paris"), ("2 + 2?", "4")])
        [('capital of France?', '4'), ('2 + 2?', 'Paris')]
    """
    if per_pair < 1:
        raise UserError(f"`per_pair` must be at least 1. Received: per_pair={per_pair}")
    generator = random.Random(seed)
    partners = {}
    for first, second in positives:
        partners.setdefault(first, set()).add(second)
    seconds = sorted({second for _, second in positives})
    drawn = []
    for first, _ in positives:
        taken = partners[first]
        if len(seconds) - len(taken) < per_pair:
            raise DataError(
                f"{per_pair} other second texts were expected for {first!r}. Received: "
                f"{len(seconds) - len(taken)}"
            )
        chosen = set()
        while len(chosen) < per_pair:
            second = seconds[generator.randrange(len(seconds))]
            if second not in taken and second not in chosen:
                chosen.add(second)
                drawn.append((first, second))
    return drawn
