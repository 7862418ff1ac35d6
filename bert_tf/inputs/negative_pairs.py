"""Negative pairs of texts, drawn from positive ones."""

import collections
import random
from collections.abc import Sequence

from bert_tf.errors import DataError, UserError, require, user_error


def negative_pairs(
    positives: Sequence[tuple[str, str]], per_pair: int = 1, seed: int = 0
) -> list[tuple[str, str]]:
    """Draws negative pairs: each first text with second texts of other pairs.

    Args:
        positives: Pairs that belong together. A first text can have several second texts.
        per_pair: The number of negative pairs for each positive one.
        seed: The random seed.

    Returns:
        `len(positives) * per_pair` pairs in the order of `positives`. None is positive, and those
        of one positive pair are different.

    Raises:
        DataError: If there are too few second texts that do not belong to a first text.
        UserError: If `per_pair` is below 1.

    Example:
        >>> negative_pairs([("capital of France?", "Paris"), ("2 + 2?", "4")])
        [('capital of France?', '4'), ('2 + 2?', 'Paris')]
    """
    require(per_pair >= 1, "must be at least 1", UserError, per_pair=per_pair)
    generator = random.Random(seed)
    partners = collections.defaultdict(set)
    for first, second in positives:
        partners[first].add(second)
    seconds = sorted({second for _, second in positives})
    drawn = []
    for first, _ in positives:
        taken = partners[first]
        if (others := len(seconds) - len(taken)) < per_pair:
            expected = f"have at least {per_pair} second texts that do not belong to {first!r}"
            raise user_error("`positives`", expected, f"{others}.", DataError)
        chosen = set()
        while len(chosen) < per_pair:
            second = generator.choice(seconds)
            if second not in taken and second not in chosen:
                chosen.add(second)
                drawn.append((first, second))
    return drawn
