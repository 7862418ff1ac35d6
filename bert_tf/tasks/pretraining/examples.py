"""Documents of token ids to masked sentence pairs, as google-research/bert makes them.

Pure functions over token ids and a `random.Random`; no TensorFlow, so that the worker processes of
`tools/create_pretraining_data.py` start at once.

Reference: google-research/bert `create_pretraining_data.py`.
"""

import dataclasses
import random
from collections.abc import Iterator, Sequence

from bert_tf.errors import ConfigError

SPECIAL_TOKENS_OF_A_PAIR = 3  # [CLS] first [SEP] second [SEP]
MASK_SHARE = 0.8  # of the chosen pieces become [MASK]
KEEP_SHARE = 0.5  # of the others stay as they are; the rest become random pieces

# A sentence is a sequence of token ids, a document one of sentences.
Document = Sequence[Sequence[int]]


@dataclasses.dataclass(frozen=True)
class MaskingVocabulary:
    """What masking must know about a vocabulary.

    Args:
        size: the number of pieces; random pieces are drawn from all of them.
        cls_token_id: the id of `[CLS]`.
        sep_token_id: the id of `[SEP]`.
        mask_token_id: the id of `[MASK]`.
        continues_word: one byte a piece, 1 where it continues a word (`##`).
    """

    size: int
    cls_token_id: int
    sep_token_id: int
    mask_token_id: int
    continues_word: bytes

    @classmethod
    def of(cls, tokenizer) -> "MaskingVocabulary":
        """Takes what is needed from a `BertTokenizer`.

        Raises:
            ConfigError: the tokenizer has no mask token.
        """
        if tokenizer.mask_token_id is None:
            raise ConfigError(
                "Expected a tokenizer with a mask token. Received: mask_token=None. Masked "
                "language modelling needs one in the vocabulary, such as [MASK]."
            )
        return cls(
            tokenizer.vocab_size,
            tokenizer.cls_token_id,
            tokenizer.sep_token_id,
            tokenizer.mask_token_id,
            bytes(piece.startswith("##") for piece in tokenizer.vocabulary),
        )


@dataclasses.dataclass(frozen=True)
class ExampleOptions:
    """How documents become examples; names and defaults are those of the original's flags.

    Args:
        max_seq_length: the greatest length of a pair, its three special tokens counted.
        max_predictions_per_seq: the greatest number of masked pieces in a pair.
        masked_lm_prob: the share of a pair's tokens that are to be predicted.
        short_seq_prob: how often a document is cut into shorter pairs of a random length.
        do_whole_word_mask: whether the pieces of a word are masked all or none.

    Raises:
        ConfigError: a value is out of range.
    """

    max_seq_length: int = 128
    max_predictions_per_seq: int = 20
    masked_lm_prob: float = 0.15
    short_seq_prob: float = 0.1
    do_whole_word_mask: bool = False

    def __post_init__(self):
        least = SPECIAL_TOKENS_OF_A_PAIR + 2  # a token for each half
        if self.max_seq_length < least or self.max_predictions_per_seq < 1:
            raise ConfigError(
                f"Expected max_seq_length of at least {least} and max_predictions_per_seq of at "
                f"least 1. Received: max_seq_length={self.max_seq_length}, "
                f"max_predictions_per_seq={self.max_predictions_per_seq}."
            )
        for name in ("masked_lm_prob", "short_seq_prob"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(
                    f"Expected {name} between 0 and 1. Received: {name}={getattr(self, name)}."
                )


@dataclasses.dataclass(frozen=True)
class PretrainingExample:
    """A masked pair of segments.

    Args:
        token_ids: `[CLS]` first segment `[SEP]` second segment `[SEP]`, masked.
        segment_ids: 0 up to the first `[SEP]`, then 1.
        masked_positions: the places of the pieces to predict, ascending.
        masked_ids: the pieces that stood there.
        is_random_next: whether the second segment comes from another document.
        tokens_cut: how many tokens the pair lost to fit into its length.
    """

    token_ids: list[int]
    segment_ids: list[int]
    masked_positions: list[int]
    masked_ids: list[int]
    is_random_next: bool
    tokens_cut: int = 0


def create_examples(
    documents: Sequence[Document],
    vocabulary: MaskingVocabulary,
    options: ExampleOptions,
    rng: random.Random,
) -> Iterator[PretrainingExample]:
    """Yields the examples of one pass over documents, in their order.

    Where there is one document only, there is no other one for a random second segment: then all
    second segments are the true ones. (The original would take the "random" segment from the same
    document and label it as random.)

    Args:
        documents: documents of sentences of token ids, none of them empty.
        vocabulary: the special tokens and what continues a word.
        options: lengths and probabilities.
        rng: the source of all chance; the same state gives the same examples.

    Example:
        >>> import random
        >>> documents = [[[7, 8], [9, 10, 11]], [[12, 13], [14]]]
        >>> vocabulary = MaskingVocabulary(20, 2, 3, 4, bytes(20))
        >>> examples = create_examples(documents, vocabulary, ExampleOptions(), random.Random(1))
        >>> [example.is_random_next for example in examples]
        [True, True, False]
    """
    for index in range(len(documents)):
        for first, second, is_random_next in _document_pairs(documents, index, options, rng):
            before = len(first) + len(second)
            first, second = truncate_pair(
                first, second, options.max_seq_length - SPECIAL_TOKENS_OF_A_PAIR, rng
            )
            sep = vocabulary.sep_token_id
            token_ids = [vocabulary.cls_token_id, *first, sep, *second, sep]
            masked, positions, labels = mask_tokens(token_ids, vocabulary, options, rng)
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
    """Cuts a document into pairs of segments: (first, second, is the second a random one)."""
    document = documents[index]
    longest = options.max_seq_length - SPECIAL_TOKENS_OF_A_PAIR
    # Some short pairs, so that fine-tuning on short texts does not meet them for the first time.
    # The original draws the length once a document, not once a pair.
    target = longest
    if rng.random() < options.short_seq_prob:
        target = rng.randint(2, longest)
    sentences: list[Sequence[int]] = []
    length = 0
    place = 0
    while place < len(document):
        sentences.append(document[place])
        length += len(sentences[-1])
        place += 1
        if place < len(document) and length < target:
            continue
        first_end = rng.randint(1, len(sentences) - 1) if len(sentences) > 1 else 1
        first = [token for sentence in sentences[:first_end] for token in sentence]
        if len(documents) == 1:
            if len(sentences) > 1:
                yield first, [t for sentence in sentences[first_end:] for t in sentence], False
            elif len(first) > 1:  # the only sentence of a document: its second half is next
                yield first[: len(first) // 2], first[len(first) // 2 :], False
        elif len(sentences) == 1 or rng.random() < 0.5:
            yield first, _random_segment(documents, index, target - len(first), rng), True
            place -= len(sentences) - first_end  # what was not used begins the next pair
        else:
            yield first, [t for sentence in sentences[first_end:] for t in sentence], False
        sentences, length = [], 0


def _random_segment(
    documents: Sequence[Document], index: int, target: int, rng: random.Random
) -> list[int]:
    """Sentences from a random place of another document, at least `target` tokens if it has them.

    The original draws up to ten times and then takes its own document after all; drawing among the
    others is what its retries are for.
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
    """Cuts a pair to `max_tokens`, token by token from the longer segment (the second, if equal).

    Each token is cut from the front or from the back by chance, so that the model meets sentences
    without beginning and sentences without end.

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
    return (first[starts[0] : starts[0] + lengths[0]], second[starts[1] : starts[1] + lengths[1]])


def mask_tokens(
    token_ids: Sequence[int],
    vocabulary: MaskingVocabulary,
    options: ExampleOptions,
    rng: random.Random,
) -> tuple[list[int], list[int], list[int]]:
    """Masks a sequence: 80 % `[MASK]`, 10 % a random piece, 10 % unchanged, piece by piece.

    `max(1, round(length * masked_lm_prob))` pieces are chosen, at most `max_predictions_per_seq`;
    the length counts `[CLS]` and `[SEP]`, which are never chosen themselves. With whole words fewer
    may be chosen, when no word fits into what is left.

    Returns:
        The masked sequence, the chosen positions in ascending order, and what stood there.

    Example:
        >>> import random
        >>> vocabulary = MaskingVocabulary(20, 2, 3, 4, bytes(20))
        >>> mask_tokens([2, 7, 8, 9, 3], vocabulary, ExampleOptions(), random.Random(1))
        ([2, 4, 8, 9, 3], [1], [7])
    """
    special = (vocabulary.cls_token_id, vocabulary.sep_token_id)
    words: list[list[int]] = []
    for position, token in enumerate(token_ids):
        if token in special:
            continue
        # Matches google-research/bert: a segment cut inside a word begins with a ## piece, which
        # then goes with the last word of the segment before it.
        if options.do_whole_word_mask and words and vocabulary.continues_word[token]:
            words[-1].append(position)
        else:
            words.append([position])
    wanted = min(
        options.max_predictions_per_seq, max(1, round(len(token_ids) * options.masked_lm_prob))
    )
    masked = list(token_ids)
    chosen: list[int] = []
    for word in _in_random_order(words, rng):
        if len(chosen) >= wanted:
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
    """Shuffles `items` in place as far as they are asked for: few of them are."""
    for last in range(len(items) - 1, -1, -1):
        index = rng.randrange(last + 1)
        items[index], items[last] = items[last], items[index]
        yield items[last]
