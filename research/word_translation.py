"""Translates word by word with a table that IBM model 1 learns from pairs of texts.

Reference: Brown et al. 1993, "The Mathematics of Statistical Machine Translation", section 4.1.

Glossary: `E` links, one for each source word and target word of the same pair of texts; `U`
different pairs of words; `S` source words.
"""

import re
from collections.abc import Sequence

import numpy as np

NULL = ""  # the source word of target words that no other one explains

_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+(?:'[^\W\u4e00-\u9fff]+)*|[^\w\s]")
_NO_SPACE = re.compile(
    r" (?=[,.;:!?)，。；：！？）])|(?<=[(（]) |(?<=[\u4e00-\u9fff]) (?=[\u4e00-\u9fff])"
)


def words_of(text: str) -> list[str]:
    """Splits a text into words, ideographs and punctuation marks.

    Example:
        >>> words_of("the king's son, 王子")
        ['the', "king's", 'son', ',', '王', '子']
    """
    return _WORD.findall(text)


def learn_table(
    sources: Sequence[str], targets: Sequence[str], iterations: int = 5, max_words: int = 60
) -> dict[str, str]:
    """Learns the most probable target word of each source word.

    Args:
        sources, targets: The pairs of texts.
        iterations: The number of iterations of expectation maximization.
        max_words: Later words of a text are not read.
    """
    source_ids, target_ids = {NULL: 0}, {}
    links = []
    group_of = []  # [E], the target word in its pair of texts: the links among which it chooses
    groups = 0
    for source, target in zip(sources, targets, strict=True):
        row = [0] + [_id(source_ids, word) for word in words_of(source)[:max_words]]
        column = [_id(target_ids, word) for word in words_of(target)[:max_words]]
        # [target words, source words] -> [target words * source words]
        row, column = np.array(row, np.int64), np.array(column, np.int64)
        links.append(np.repeat(column, len(row)) + (np.tile(row, len(column)) << 32))
        group_of.append(
            np.repeat(np.arange(groups, groups + len(column), dtype=np.int32), len(row))
        )
        groups += len(column)
    pairs, pair_of = np.unique(np.concatenate(links), return_inverse=True)
    pair_of, group_of = pair_of.astype(np.int32), np.concatenate(group_of)  # [E], [E]
    pair_source, pair_target = pairs >> 32, pairs & (2**32 - 1)  # [U], [U]

    probability = np.ones(len(pairs))  # [U], t(target | source); equal at the start
    for _ in range(iterations):
        share = probability[pair_of]  # [U] -> [E]
        share /= np.bincount(group_of, share)[group_of]
        count = np.bincount(pair_of, share, len(pairs))  # [E] -> [U]
        probability = count / np.bincount(pair_source, count)[pair_source]

    source_words, target_words = list(source_ids), list(target_ids)
    # The last one of a source word is its most probable one.
    order = np.lexsort((-pair_target, probability, pair_source))
    return {source_words[pair_source[u]]: target_words[pair_target[u]] for u in order}


def translate(text: str, table: dict[str, str]) -> str:
    """Replaces each word by that of the table, or keeps it if the table does not have it."""
    words = (table.get(word, word) for word in words_of(text))
    return _NO_SPACE.sub("", " ".join(words))


def _id(ids, word):
    return ids.setdefault(word, len(ids))
