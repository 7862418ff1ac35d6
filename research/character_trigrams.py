"""A trigram model of characters with interpolated Kneser-Ney smoothing.

Reference: Chen and Goodman 1999, section 4.1.6 (one discount); Kneser and Ney 1995.
"""

import collections
import math
from collections.abc import Iterable

_BEGIN, _END = "\x02", "\x03"


class CharacterTrigrams:
    """Learns from sentences how probable a character is after the two before it.

    Args:
        sentences: The training text.
        discount: What is taken off each count.
        vocabulary_size: The number of characters that share the probability of unseen ones.
            Default: the distinct characters of the text and one more.

    Example:
        >>> trigrams = CharacterTrigrams(["ab", "ab", "b"])
        >>> trigrams.score("ab") > trigrams.score("ba")
        True
    """

    def __init__(
        self, sentences: Iterable[str], discount: float = 0.75, vocabulary_size: int | None = None
    ):
        trigrams = collections.Counter()
        for text in sentences:
            padded = f"{_BEGIN}{_BEGIN}{text}{_END}"
            trigrams.update(padded[i : i + 3] for i in range(len(padded) - 2))
        # A shorter n-gram counts once for each different character before it.
        bigrams = collections.Counter(gram[1:] for gram in trigrams)
        characters = collections.Counter(gram[1:] for gram in bigrams)
        self.discount = discount
        self.vocabulary_size = vocabulary_size or len(characters) + 1
        self.levels = [_Level(counts) for counts in (characters, bigrams, trigrams)]

    def score(self, sentence: str) -> float:
        """Returns the log-probability of a sentence and its end."""
        padded = f"{_BEGIN}{_BEGIN}{sentence}{_END}"
        return sum(math.log(self._probability(padded[i : i + 3])) for i in range(len(padded) - 2))

    def _probability(self, gram):
        """Returns p(c | ab) of the trigram abc."""
        probability = 1 / self.vocabulary_size
        for level, start in zip(self.levels, (2, 1, 0), strict=True):
            total = level.totals[gram[start:-1]]
            if not total:
                break
            kept = max(level.counts[gram[start:]] - self.discount, 0)
            passed_on = self.discount * level.followers[gram[start:-1]]
            probability = (kept + passed_on * probability) / total
        return probability


class _Level:
    """Holds the counts of n-grams, and for each context their sum and their number."""

    def __init__(self, counts):
        self.counts = counts
        self.totals, self.followers = collections.Counter(), collections.Counter()
        for gram, count in counts.items():
            self.totals[gram[:-1]] += count
            self.followers[gram[:-1]] += 1
