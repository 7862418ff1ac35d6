"""Pairs of texts that do not belong together, drawn from pairs that do or from classes of texts."""

import collections
import random
from collections.abc import Hashable, Sequence

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


def pairs_by_class(
    texts: Sequence[str], labels: Sequence[Hashable], per_text: int = 1, seed: int = 0
) -> tuple[tuple[list[str], list[str]], list[int]]:
    """Draws pairs from texts with classes: texts of one class belong together, others do not.

    Args:
        texts: The texts. A text may be there several times, with one class or with several.
        labels: The class of each.
        per_text: The number of pairs of a text with others of its class, and of pairs with texts
            that do not have this class.
        seed: The random seed.

    Returns:
        The first and the second texts, as `fit` takes them, and a label for each pair: 1 for the
        same class, 0 for another one. `2 * per_text` pairs for each text, in the order of `texts`.
        No text is paired with itself, nor twice with another one for the same row.

    Raises:
        DataError: If a class has too few different texts, or the other classes have.
        UserError: If `per_text` is below 1, or there is not one label for each text.

    Example:
        >>> texts = ["It rains.", "It pours.", "A dog barks.", "A dog howls."]
        >>> (firsts, seconds), labels = pairs_by_class(texts, ["rain", "rain", "dog", "dog"])
        >>> firsts[:2], seconds[0], labels
        (['It rains.', 'It rains.'], 'It pours.', [1, 0, 1, 0, 1, 0, 1, 0])
    """
    require(per_text >= 1, "must be at least 1", UserError, per_text=per_text)
    if len(texts) != len(labels):
        received = f"{len(labels)} labels, {len(texts)} texts"
        raise user_error("`labels`", "have one class for each text", received)
    generator = random.Random(seed)
    classes, members = collections.defaultdict(set), collections.defaultdict(dict)
    for text, label in zip(texts, labels):
        classes[text].add(label)
        members[label][text] = None  # a set in the order of the texts
    every, members = [*classes], {label: [*of_class] for label, of_class in members.items()}
    firsts, seconds, are_same = [], [], []
    for text, label in zip(texts, labels):
        same = members[label]
        others = {1: (same, len(same) - 1), 0: (every, len(every) - len(same))}
        for is_same, (candidates, count) in others.items():
            if count < per_text:
                kind = "of the same class" if is_same else "without this class"
                expected = f"have at least {per_text} other texts {kind} for each of {label!r}"
                raise user_error("`texts`", expected, f"{count} for {text!r:.200}", DataError)
            chosen = {text}
            while len(chosen) <= per_text:
                other = generator.choice(candidates)
                if other not in chosen and (label in classes[other]) == is_same:
                    chosen.add(other)
                    firsts.append(text)
                    seconds.append(other)
                    are_same.append(is_same)
    return (firsts, seconds), are_same
