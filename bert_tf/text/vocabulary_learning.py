"""Learns vocabularies from raw text: WordPiece with tensorflow-text's learner, or BPE.

Only the counts of distinct words, as the tokenizer splits them, are held in memory. Counts can be
added, so it does not matter how the text is divided into files.

BPE is implemented here because the trainer of Hugging Face's `tokenizers` 0.23.3 is not
reproducible: with `##` continuations, the order of the ids differs between processes.

References: tensorflow-text `wordpiece_tokenizer_learner_lib.py`; Sennrich, Haddow and Birch,
"Neural Machine Translation of Rare Words with Subword Units", arXiv 1508.07909.
"""

import collections
import functools
import heapq
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tensorflow as tf

from bert_tf.base.file_errors import data_error
from bert_tf.base.progress import progress_bar
from bert_tf.base.regular_files import open_input
from bert_tf.errors import ConfigError, DataError, require, user_error
from bert_tf.text.chinese_words import chinese_words
from bert_tf.text.tensorflow_text import explained_import
from bert_tf.text.unicode_tables import CJK_BLOCKS
from bert_tf.text.vocabulary import CONTINUATION
from bert_tf.text.word_splitter import WordSplitter

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALGORITHMS = ("wordpiece", "bpe")
TEXTS_AT_A_TIME = 2048
_IDEOGRAPH = re.compile("([" + "".join(f"{chr(a)}-{chr(b)}" for a, b in CJK_BLOCKS) + "])")
MAX_WORD_CHARACTERS = 50  # tensorflow-text's default; longer words teach nothing


def learn_vocabulary(
    texts: Iterable[str],
    vocabulary_size: int,
    algorithm: str = "wordpiece",
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_on_cjk: bool = True,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    num_unused: int = 0,
    min_frequency: int = 2,
    max_characters: int = 8000,
    progress: bool = True,
    segmenter: str | None = None,
) -> list[str]:
    """Learns a vocabulary from raw text.

    Args:
        texts: The texts. They are read once, a few thousand at a time.
        vocabulary_size: The maximum number of pieces.
        algorithm: "wordpiece" (tensorflow-text's) or "bpe" (merges of the most frequent pair).
        lowercase, strip_accents, split_on_cjk: See `BertTokenizer`. With `split_on_cjk`,
            ideographs get no `##` pieces.
        special_tokens: The first pieces. `[PAD]` has id 0 if it comes first.
        num_unused: The number of `[unusedN]` pieces after them, to be replaced by new words later.
        min_frequency: Words, characters and pairs that occur less often are ignored.
        max_characters: The maximum number of distinct characters. The most frequent ones are kept.
        progress: Whether to show progress bars.
        segmenter: "jieba" makes pieces of frequent Chinese words, for a `BertTokenizer` with this
            segmenter. If there is room for N pieces after the single characters, these are the
            Chinese ones of the N most frequent words of the texts.

    Returns:
        The pieces: special and unused ones, characters, Chinese words of a segmenter, then other
        longer ones; words and longer ones with the most frequent first.

    Raises:
        ConfigError: If an option has an invalid value.
        DataError: If no word is frequent enough, or `vocabulary_size` is too small for the special
            tokens and the characters.
        UserError: If the package of the `segmenter` is not installed.

    Example:
        >>> vocabulary = bert_tf.text.learn_vocabulary(["low lower lowest"] * 9, vocabulary_size=30)
        >>> vocabulary[:5]
        ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]']
        >>> "low" in vocabulary
        True
    """
    counts = count_words(texts, lowercase, strip_accents, split_on_cjk, segmenter, progress)
    options = (algorithm, special_tokens, num_unused, min_frequency, max_characters, progress)
    return learn_from_counts(counts, vocabulary_size, *options, segmenter)


def count_words(
    texts: Iterable[str],
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_on_cjk: bool = True,
    segmenter: str | None = None,
    progress: bool = True,
) -> dict[str, int]:
    """Returns the words that the tokenizer splits texts into, with their counts.

    The arguments are those of `learn_vocabulary`.

    Example:
        >>> dict(count_words(["a b.", "A"]))
        {'a': 2, 'b': 1, '.': 1}
    """
    strip_accents = lowercase if strip_accents is None else strip_accents
    words = chinese_words(segmenter)
    count_batch = _traced_count(WordSplitter(lowercase, strip_accents, split_on_cjk, words=words))
    totals: collections.Counter[bytes] = collections.Counter()
    texts = iter(texts)
    shown = {"unit": " texts", "unit_scale": True, "disable": not progress}
    with progress_bar(None, "counting words", **shown) as bar:
        while batch := list(itertools.islice(texts, TEXTS_AT_A_TIME)):
            words, counts = count_batch(tf.constant(batch))
            totals.update(dict(zip(words.numpy().tolist(), counts.numpy().tolist())))
            bar.update(len(batch))
    return {word.decode(): count for word, count in totals.items()}


@functools.cache
def _traced_count(splitter: WordSplitter):
    """Returns the function that counts the words of a batch, traced once for all texts."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def count_batch(batch: tf.Tensor):
        words, _, counts = tf.unique_with_counts(splitter.ragged_words(batch).values)
        return words, counts

    return count_batch


def learn_from_counts(
    word_counts: Mapping[str, int],
    vocabulary_size: int,
    algorithm: str = "wordpiece",
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    num_unused: int = 0,
    min_frequency: int = 2,
    max_characters: int = 8000,
    progress: bool = True,
    segmenter: str | None = None,
) -> list[str]:
    """Learns a vocabulary from words with their counts, which may be sums over several shards.

    The other arguments and the result are those of `learn_vocabulary`. Raises `ConfigError` if an
    option has an invalid value, and `DataError` if no word is frequent enough, or `vocabulary_size`
    is too small.
    """
    require(algorithm in ALGORITHMS, f"must be one of {ALGORITHMS}", algorithm=algorithm)
    if min_frequency < 1 or max_characters < 1 or num_unused < 0:
        expected = "be at least 1, and `num_unused` at least 0"
        received = f"{min_frequency=}, {max_characters=}, {num_unused=}."
        raise user_error("`min_frequency` and `max_characters`", expected, received, ConfigError)
    reserved = [*special_tokens, *(f"[unused{index}]" for index in range(num_unused))]
    rule = "must be unique, and not among the `num_unused` tokens [unusedN]"
    is_valid = len(set(reserved)) == len(reserved)
    require(is_valid, rule, ConfigError, special_tokens=list(special_tokens), num_unused=num_unused)
    chinese, parts = {}, word_counts
    if segmenter is not None:
        chinese, parts = _without_chinese(word_counts, min_frequency)
    counts = _usable_counts(parts, min_frequency, max_characters)
    if not counts:
        expected = f"have words that occur at least min_frequency={min_frequency} times"
        received = f"{len(word_counts)} distinct words, none of them often enough."
        raise user_error("The texts", expected, received, DataError)
    # A character that is always a separate word (an ideograph, a full stop) needs no ## piece.
    joined = {char for word in counts if len(word) > 1 for char in word}
    alone = [word for word in counts if len(word) == 1 and word not in joined]
    counts = {word: count for word, count in counts.items() if word in joined or len(word) > 1}
    room = vocabulary_size - len(reserved) - len(alone)
    if algorithm == "bpe":
        characters = {piece for word in counts for piece in _symbols(word)}
    else:
        characters = {piece for word in counts for c in word for piece in (c, CONTINUATION + c)}
    rule = (
        f"must be at least {vocabulary_size + len(characters) - room}, for {len(reserved)} special "
        f"tokens and {len(alone) + len(characters)} single characters"
    )
    fix = f"Raise it, or lower max_characters (now {max_characters})."
    require(len(characters) <= room, rule, DataError, fix, vocabulary_size=vocabulary_size)
    known = characters.union(alone)
    longer = {word: -count for word, count in counts.items() if len(word) > 1}
    longer |= {word: -count for word, count in chinese.items() if known.issuperset(word)}
    frequent = sorted(longer, key=lambda word: (longer[word], word)) if chinese else []
    learned = [word for word in frequent[: room - len(characters)] if word in chinese]
    room -= len(learned)
    if len(characters) < room:
        learn = _learn_bpe if algorithm == "bpe" else _learn_wordpiece
        learned += learn(counts, room, characters, min_frequency, progress)
    return [*reserved, *sorted(alone), *sorted(characters), *learned]


def read_lines(paths: Sequence[str | os.PathLike], progress: bool = True) -> Iterator[str]:
    """Yields the lines of UTF-8 text files, without their line ends.

    Raises `DataError` if a file cannot be read or a line is not UTF-8.
    """
    shown = {"unit": "B", "unit_scale": True, "disable": not progress}
    try:
        total = sum(os.path.getsize(path) for path in paths)
        with progress_bar(None, "reading", total, **shown) as bar:
            for path in paths:
                with open_input(path) as file:
                    for number, line in enumerate(file, start=1):
                        bar.update(len(line))
                        try:
                            yield line.decode("utf-8").rstrip("\r\n")
                        except UnicodeDecodeError as error:
                            received = f"{error.reason} at byte {error.start}"
                            raise data_error(path, "be UTF-8", received, number) from error
    except OSError as error:
        name, reason = error.filename, error.strerror
        raise DataError(f"{name} must be a readable text file. Received: {reason}.") from error


def _usable_counts(
    word_counts: Mapping[str, int], min_frequency: int, max_characters: int
) -> dict[str, int]:
    """Returns the frequent words of the most frequent characters, the most frequent first."""
    characters: collections.Counter[str] = collections.Counter()
    for word, count in word_counts.items():
        for char in word:
            characters[char] += count
    ranked = sorted(characters.items(), key=lambda item: (-item[1], item[0]))
    allowed = {char for char, count in ranked[:max_characters] if count >= min_frequency}
    return {
        word: count
        for word, count in sorted(word_counts.items(), key=lambda item: (-item[1], item[0]))
        if count >= min_frequency and len(word) <= MAX_WORD_CHARACTERS and allowed.issuperset(word)
    }


def _without_chinese(
    word_counts: Mapping[str, int], min_frequency: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Returns the counts of frequent words that ideographs divide, and of all parts of words."""
    chinese, others = {}, collections.Counter()
    for word, count in word_counts.items():
        parts = [part for part in _IDEOGRAPH.split(word) if part]
        if len(parts) > 1 and count >= min_frequency:
            chinese[word] = count
        for part in parts:
            others[part] += count
    return chinese, others


def _learn_wordpiece(counts, room, characters, min_frequency, progress) -> list[str]:
    """Returns the pieces longer than one character that tensorflow-text's learner finds."""
    with explained_import():
        from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as learner

    shown = {"unit": " words", "disable": not progress}
    with progress_bar(None, "learning WordPiece", len(counts), **shown) as bar:
        vocabulary = learner.learn(
            counts,
            vocab_size=room,
            reserved_tokens=[],
            lower_thresh=min_frequency,
            max_token_length=MAX_WORD_CHARACTERS,
            max_unique_chars=len(characters),
        )
        bar.update(len(counts))
    # The learner may return more pieces than its target, the most frequent first.
    return [piece for piece in vocabulary if piece not in characters][: room - len(characters)]


def _symbols(word: str) -> list[str]:
    return [word[0], *(CONTINUATION + char for char in word[1:])]


def _learn_bpe(counts, room, characters, min_frequency, progress) -> list[str]:
    """Merges the most frequent pair, the first in sorted order of equal ones, up to `room`."""
    words = [_symbols(word) for word in counts]
    frequencies = list(counts.values())
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    places: dict[tuple[str, str], set[int]] = collections.defaultdict(set)
    for index, word in enumerate(words):
        for pair in itertools.pairwise(word):
            pairs[pair] += frequencies[index]
            places[pair].add(index)
    # Counts change while pairs are in the heap: an outdated entry is pushed again, corrected.
    heap = [(-count, pair) for pair, count in pairs.items()]
    heapq.heapify(heap)
    learned: list[str] = []
    known = set(characters)
    shown = {"unit": " pieces", "disable": not progress}
    with progress_bar(None, "learning BPE", room - len(characters), **shown) as bar:
        while heap and len(known) < room:
            negative, pair = heapq.heappop(heap)
            if pairs[pair] != -negative:
                if pairs[pair] >= min_frequency:
                    heapq.heappush(heap, (-pairs[pair], pair))
                continue
            if -negative < min_frequency:
                break
            merged = pair[0] + pair[1].removeprefix(CONTINUATION)
            if merged not in known:  # two pairs may spell the same piece
                known.add(merged)
                learned.append(merged)
                bar.update()
            changed: set[tuple[str, str]] = set()
            for index in places.pop(pair):
                for old_pair in itertools.pairwise(words[index]):
                    pairs[old_pair] -= frequencies[index]
                    places[old_pair].discard(index)
                words[index] = _merge(words[index], pair, merged)
                for new_pair in itertools.pairwise(words[index]):
                    pairs[new_pair] += frequencies[index]
                    places[new_pair].add(index)
                    changed.add(new_pair)
            del pairs[pair]
            places.pop(pair, None)
            for new_pair in changed:
                heapq.heappush(heap, (-pairs[new_pair], new_pair))
    return learned


def _merge(word: list[str], pair: tuple[str, str], merged: str) -> list[str]:
    result, index = [], 0
    while index < len(word):
        found = tuple(word[index : index + 2]) == pair
        result.append(merged if found else word[index])
        index += 2 if found else 1
    return result
