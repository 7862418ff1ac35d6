"""Makes masked sentence pairs of documents of token ids, without TensorFlow, which starts slowly.

Reference: google-research/bert `create_pretraining_data.py`.
"""

import dataclasses
import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.errors import require

SPECIAL_TOKENS_OF_A_PAIR = 3  # [CLS] first [SEP] second [SEP]
MASK_SHARE = 0.8  # of the chosen tokens become [MASK]
KEEP_SHARE = 0.5  # of the other chosen tokens are kept; the rest become random tokens

Document = Sequence[Sequence[int]]  # sentences of token ids


@dataclasses.dataclass(frozen=True)
class MaskingVocabulary:
    """The properties of a vocabulary that masking needs.

    Example:
        >>> MaskingVocabulary.of(bert_tf.BertTokenizer.from_pretrained("reviews/")).size
        64
    """

    size: int  # random tokens are drawn from all of the vocabulary
    cls_token_id: int
    sep_token_id: int
    mask_token_id: int
    continues_word: bytes  # one byte per token, 1 if it continues a word (`##`)

    @classmethod
    def of(cls, tokenizer) -> "MaskingVocabulary":
        """Returns the properties of a `BertTokenizer`'s vocabulary, if it has a mask token.

        Raises:
            ConfigError: If the tokenizer has no mask token.
        """
        tokenizer.require_mask_token()
        numbers = np.arange(tokenizer.vocab_size)
        begins = tokenizer.word_starts(numbers[:, np.newaxis]).numpy()  # [V, 1], of each alone
        return cls(
            tokenizer.vocab_size,
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.mask_token_id,
            (~begins).tobytes(),
        )


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """The options of examples, with the names and defaults of the original's flags.

    Args:
        max_seq_length: The largest length of a pair, with its three special tokens.
        max_predictions_per_seq: The largest number of masked tokens of a pair.
        masked_lm_prob: The fraction of the tokens that are predicted.
        short_seq_prob: The probability that a document is divided into shorter pairs.
        do_whole_word_mask: Whether the tokens of a word are masked together.

    Raises:
        ConfigError: If a value is out of range.

    Example:
        >>> ExampleOptions(max_seq_length=64).max_predictions_per_seq
        20
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False

    def __post_init__(self):
        least = SPECIAL_TOKENS_OF_A_PAIR + 2  # one token per segment
        for name, bound in (("max_seq_length", least), ("max_predictions_per_seq", 1)):
            value = getattr(self, name)
            require(value >= bound, f"must be at least {bound}", **{name: value})
        share, short = self.masked_lm_prob, self.short_seq_prob
        require(0 < share < 1, "must be in (0, 1)", masked_lm_prob=share)
        require(0 <= short <= 1, "must be in [0, 1]", short_seq_prob=short)


@dataclasses.dataclass(frozen=True)
class PretrainingExample:
    """A masked pair of segments."""

    token_ids: list[int]  # [CLS] first segment [SEP] second segment [SEP]
    segment_ids: list[int]
    masked_positions: list[int]  # sorted
    masked_ids: list[int]  # the tokens at these positions before masking
    is_random_next: bool  # whether the second segment is from another document
    tokens_cut: int = 0  # the number of tokens that did not fit into the length


def create_examples(
    documents: Sequence[Document],
    vocabulary: MaskingVocabulary,
    options: ExampleOptions,
    rng: random.Random,
) -> Iterator[PretrainingExample]:
    """Yields the examples of one pass over documents, in their order.

    If there is only one document, no second segment is random. (In the original, it may be.)

    Args:
        documents: Documents of sentences of token ids. No document or sentence is empty.
        vocabulary: The vocabulary.
        options: Lengths and probabilities.
        rng: The source of random numbers. The same state gives the same examples.

    Example:
        >>> import random
        >>> documents = [[[7, 8], [9, 10, 11]], [[12, 13], [14]]]
        >>> vocabulary = MaskingVocabulary(20, 2, 3, 4, bytes(20))
        >>> examples = create_examples(documents, vocabulary, ExampleOptions(), random.Random(1))
        >>> [example.is_random_next for example in examples]
        [True, True, False]
    """
    cls, sep = vocabulary.cls_token_id, vocabulary.sep_token_id
    longest = options.max_seq_length - SPECIAL_TOKENS_OF_A_PAIR
    for index in range(len(documents)):
        for first, second, is_random_next in _document_pairs(documents, index, options, rng):
            before = len(first) + len(second)
            first, second = truncate_pair(first, second, longest, rng)
            token_ids = [cls, *first, sep, *second, sep]
            masked, positions, labels = mask_example(token_ids, vocabulary, options, rng)
            yield PretrainingExample(
                masked,
                [0] * (len(first) + 2) + [1] * (len(second) + 1),
                positions,
                labels,
                is_random_next,
                before - len(first) - len(second),
            )


def _document_pairs(
    documents: Sequence[Document], index: int, options: ExampleOptions, rng: random.Random
) -> Iterator[tuple[list[int], list[int], bool]]:
    """Divides a document into pairs of segments, with whether the second one is random."""
    document = documents[index]
    longest = options.max_seq_length - SPECIAL_TOKENS_OF_A_PAIR
    # Short pairs prepare for fine-tuning. The length is drawn per document, as in the original.
    target = rng.randint(2, longest) if rng.random() < options.short_seq_prob else longest
    sentences: list[Sequence[int]] = []
    length = 0
    place = 0
    while place < len(document):
        sentences.append(document[place])
        length += len(sentences[-1])
        place += 1
        if place < len(document) and length < target:
            continue
        single = len(sentences) == 1
        first_end = 1 if single else rng.randint(1, len(sentences) - 1)
        first = list(itertools.chain.from_iterable(sentences[:first_end]))
        if len(documents) > 1 and (single or rng.random() < 0.5):
            yield first, _random_segment(documents, index, target - len(first), rng), True
            place -= len(sentences) - first_end  # unused sentences begin the next pair
        else:
            second = list(itertools.chain.from_iterable(sentences[first_end:]))
            if single:  # in the only document: the sentence is divided in the middle
                first, second = first[: len(first) // 2], first[len(first) // 2 :]
            if first:
                yield first, second, False
        sentences, length = [], 0


def _random_segment(
    documents: Sequence[Document], index: int, target: int, rng: random.Random
) -> list[int]:
    """Returns sentences of another document, with at least `target` tokens if there are as many.

    The original draws any document up to ten times, until it is another one.
    """
    other = rng.randrange(len(documents) - 1)
    document = documents[other + (other >= index)]
    segment: list[int] = []
    for place in range(rng.randrange(len(document)), len(document)):
        segment.extend(document[place])
        if len(segment) >= target:
            break
    return segment


def truncate_pair(
    first: list[int], second: list[int], max_tokens: int, rng: random.Random
) -> tuple[list[int], list[int]]:
    """Shortens a pair by dropping the first or last token of the longer (or second) segment.

    Example:
        >>> import random
        >>> truncate_pair([1, 2, 3, 4], [5, 6], 4, random.Random(0))
        ([1, 2], [5, 6])
    """
    lengths = [len(first), len(second)]
    starts = [0, 0]
    while sum(lengths) > max_tokens:
        longer = 0 if lengths[0] > lengths[1] else 1
        lengths[longer] -= 1
        starts[longer] += rng.random() < 0.5
    return first[starts[0] : starts[0] + lengths[0]], second[starts[1] : starts[1] + lengths[1]]


def mask_example(
    token_ids: Sequence[int],
    vocabulary: MaskingVocabulary,
    options: ExampleOptions,
    rng: random.Random,
) -> tuple[list[int], list[int], list[int]]:
    """Masks a sequence: of the chosen tokens, 80 % become `[MASK]`, 10 % random, 10 % are kept.

    `max(1, round(length * masked_lm_prob))` tokens are chosen, at most `max_predictions_per_seq`.
    The length includes `[CLS]` and `[SEP]`, which are never chosen. If the next whole word has too
    many tokens, fewer are chosen.

    Returns:
        The masked sequence, the chosen positions, sorted, and their tokens before masking.

    Example:
        >>> import random
        >>> vocabulary = MaskingVocabulary(20, 2, 3, 4, bytes(20))
        >>> mask_example([2, 7, 8, 9, 3], vocabulary, ExampleOptions(), random.Random(1))
        ([2, 4, 8, 9, 3], [1], [7])
    """
    special = (vocabulary.cls_token_id, vocabulary.sep_token_id)
    words: list[list[int]] = []
    for position, token in enumerate(token_ids):
        if token in special:
            continue
        # Matches google-research/bert: the first ## token of a segment that was cut inside a word
        # counts as part of the last word of the segment before it.
        if options.do_whole_word_mask and words and vocabulary.continues_word[token]:
            words[-1].append(position)
        else:
            words.append([position])
    wanted = max(1, round(len(token_ids) * options.masked_lm_prob))
    wanted = min(wanted, options.max_predictions_per_seq)
    masked = list(token_ids)
    chosen: list[int] = []
    for word in _in_random_order(words, rng):
        if len(chosen) == wanted:
            break
        if len(chosen) + len(word) > wanted:
            continue
        for position in word:
            chosen.append(position)
            if rng.random() < MASK_SHARE:
                masked[position] = vocabulary.mask_token_id
            elif rng.random() >= KEEP_SHARE:
                masked[position] = rng.randrange(vocabulary.size)
    chosen.sort()
    return masked, chosen, [token_ids[position] for position in chosen]


def _in_random_order(items: list, rng: random.Random) -> Iterator:
    """Shuffles `items` in place while they are read, because only a few are needed."""
    for last in range(len(items) - 1, -1, -1):
        index = rng.randrange(last + 1)
        items[index], items[last] = items[last], items[index]
        yield items[last]
