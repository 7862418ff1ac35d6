"""Pairs of a true sentence and a misheard one, in which a word is replaced by a homophone."""

import collections
import random

from .corpora.character_parts import is_ideograph, require_chinese_package

_LENGTHS = range(6, 33)  # characters of a sentence
# Words of a set are exchanged in correct sentences, or by those who write them.
_INTERCHANGEABLE = ("他她它", "的地得", "做作", "那哪", "象像")


def homophones(counts, min_count):
    """Returns the words of at least `min_count`, by their syllables without tones."""
    pypinyin = require_chinese_package("pypinyin")
    words = collections.defaultdict(list)
    for word, count in counts.items():
        if count >= min_count and all(map(is_ideograph, word)):
            words[tuple(pypinyin.lazy_pinyin(word))].append(word)
    return words


def mishear(words, by_sound, counts, generator):
    """Returns the words with one replaced by a homophone, or None if none has any.

    More frequent homophones are chosen more often.
    """
    pypinyin = require_chinese_package("pypinyin")
    choices = []
    for place, word in enumerate(words):
        # `lazy_pinyin` returns the letters of other words, such as "ta".
        syllables = pypinyin.lazy_pinyin(word) if all(map(is_ideograph, word)) else ()
        others = by_sound.get(tuple(syllables), ())
        others = [other for other in others if other != word and not _is_same(other, word)]
        if others:
            choices.append((place, others))
    if not choices:
        return None
    place, others = generator.choice(choices)
    (other,) = generator.choices(others, [counts[other] for other in others])
    return [*words[:place], other, *words[place + 1 :]]


def _is_same(other, word):
    """Returns whether words differ only in characters that are exchanged."""
    return all(
        a == b or any(a in group and b in group for group in _INTERCHANGEABLE)
        for a, b in zip(other, word, strict=True)
    )


def make_pairs(training, sentences, cut, num_pairs, min_count, seed):
    """Returns pairs of a true and a misheard sentence, of different true sentences.

    Args:
        training: The sentences of the training text.
        sentences: The sentences to replace a word in.
        cut: A function that returns the words of a sentence.
        num_pairs: The number of pairs.
        min_count: How often the other word is at least in the training text.
        seed: The seed of the order and of the words.
    """
    generator = random.Random(seed)
    counts = collections.Counter(word for text in training for word in cut(text))
    by_sound, known = homophones(counts, min_count), set("".join(training))
    seen = set(training)
    sentences = [s for s in dict.fromkeys(sentences) if s not in seen and known.issuperset(s)]
    generator.shuffle(sentences)
    pairs = []
    for sentence in sentences:
        if len(sentence) in _LENGTHS and len(pairs) < num_pairs:
            misheard = mishear(list(cut(sentence)), by_sound, counts, generator)
            if misheard:
                pairs.append((sentence, "".join(misheard)))
    return pairs


def shares(rows):
    """Returns in which share of the pairs each model and only one finds the true sentence.

    `rows` end with the differences of the log-probabilities, of BERT and of trigrams.
    """
    right = collections.Counter((bert > 0, trigram > 0) for *_, bert, trigram in rows)
    return {
        "bert": (right[True, True] + right[True, False]) / len(rows),
        "trigrams": (right[True, True] + right[False, True]) / len(rows),
        "bert_alone": right[True, False] / len(rows),
        "trigrams_alone": right[False, True] / len(rows),
    }
