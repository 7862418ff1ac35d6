"""Tokenizes a chunk of documents and makes the records of one pass over it.

Nothing but the chunk, its number, the pass and the seed determines the records. TensorFlow is used
by the tokenizer alone, so that processes that make records do not import it: it would take seconds
and hundreds of megabytes in each.

Reference: google-research/bert `create_pretraining_data.py`; tensorflow/core/example/example.proto
and feature.proto; protobuf's encoding of packed repeated fields.
"""

import dataclasses
import functools
import itertools
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.pretraining.document_chunks import token_splits
from bert_tf.tasks.pretraining.examples import (
    ExampleOptions,
    MaskingVocabulary,
    PretrainingExample,
    create_examples,
)

HISTOGRAM_BINS = 8
BAR_WIDTH = 40


@dataclasses.dataclass
class PretrainingSummary:
    """Counts over examples.

    Example:
        >>> PretrainingSummary(max_seq_length=128).lines()[0]
        'examples           0'
    """

    max_seq_length: int
    documents: int = 0  # over all passes
    examples: int = 0
    random_next: int = 0  # examples with a random second segment
    tokens: int = 0  # with special tokens
    masked: int = 0  # tokens to predict
    truncated: int = 0  # examples that lost tokens
    tokens_cut: int = 0  # lost tokens
    lengths: list[int] = dataclasses.field(default_factory=lambda: [0] * HISTOGRAM_BINS)

    def count(self, example) -> None:
        """Counts a `PretrainingExample`."""
        length = len(example.token_ids)
        self.examples += 1
        self.random_next += example.is_random_next
        self.tokens += length
        self.masked += len(example.masked_positions)
        self.truncated += example.tokens_cut > 0
        self.tokens_cut += example.tokens_cut
        self.lengths[(length - 1) * HISTOGRAM_BINS // self.max_seq_length] += 1

    def add(self, other: "PretrainingSummary") -> None:
        """Adds the counts of other examples."""
        self.lengths = [a + b for a, b in zip(self.lengths, other.lengths)]
        for field in dataclasses.fields(self):
            if field.type is int and field.name != "max_seq_length":
                setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def lines(self) -> list[str]:
        """Returns the summary as lines of text."""
        examples, tokens = max(1, self.examples), max(1, self.tokens)
        is_next = self.examples - self.random_next
        lines = [
            f"examples           {self.examples}",
            f"masked share       {self.masked / tokens:.4f} of {self.tokens} tokens, "
            f"{self.masked / examples:.2f} per example",
            f"IsNext share       {is_next / examples:.4f}",
            f"truncated examples {self.truncated} ({self.truncated / examples:.1%}), "
            f"{self.tokens_cut} tokens dropped",
            f"lengths            mean {self.tokens / examples:.1f} of {self.max_seq_length}",
        ]
        most = max(1, *self.lengths)
        bins = range(HISTOGRAM_BINS + 1)
        edges = [-(-edge * self.max_seq_length // HISTOGRAM_BINS) for edge in bins]
        for low, high, number in zip(edges, edges[1:], self.lengths):
            bar = "#" * round(BAR_WIDTH * number / most)
            line = f"  {low + 1:>5} to {high:<5} {number:>10} {number / examples:>6.1%} {bar}"
            lines.append(line.rstrip())
        return lines


TEXTS_AT_A_TIME = 4096


class TokenizedChunk(NamedTuple):
    """The token ids of a chunk's documents.

    Args:
        ids: The ids of all sentences, int32 `[tokens]`.
        sentences: Where the sentences begin in `ids`, and its length, int64 `[sentences + 1]`.
        documents: Where the documents begin in `sentences`, int64 `[documents + 1]`.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
        >>> chunk = tokenize_documents([["a good film .", "the film ."]], tokenizer)
        >>> chunk.sentences.tolist(), chunk.documents.tolist()
        ([0, 4, 7], [0, 2])
    """

    ids: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


def tokenize_documents(
    documents: Sequence[list[str]], tokenizer, apply: Callable = map
) -> TokenizedChunk:
    """Tokenizes documents of sentences; sentences and documents without tokens are dropped.

    Args:
        documents: The documents.
        tokenizer: A `BertTokenizer`.
        apply: `map`, or that of threads.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
        >>> tokenize_documents([["a good film ."]], tokenizer).ids.shape
        (4,)
    """

    def tokenize(batch: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = tokenizer.tokenize(batch)
        return ids.flat_values.numpy(), ids.row_lengths().numpy()

    texts = list(itertools.chain.from_iterable(documents))
    # One batch even if there is no text, because the file has changed since the scan.
    starts = range(0, max(len(texts), 1), TEXTS_AT_A_TIME)
    batches = [texts[start : start + TEXTS_AT_A_TIME] for start in starts]
    ids, lengths = map(np.concatenate, zip(*apply(tokenize, batches)))
    return TokenizedChunk(ids, *token_splits([len(document) for document in documents], lengths))


def make_records(
    chunk: TokenizedChunk,
    vocabulary: MaskingVocabulary,
    options: ExampleOptions,
    seed: tuple[int, int, int],
) -> tuple[list[int], list[bytes], PretrainingSummary]:
    """Returns the random keys, the serialized examples and their counts, of one pass over a chunk.

    Args:
        chunk: The chunk.
        vocabulary: The properties of the vocabulary.
        options: Lengths and probabilities.
        seed: The seed of the run, the number of the chunk and the number of the pass.

    Example:
        >>> from bert_tf.tasks.pretraining import ExampleOptions, MaskingVocabulary
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
        >>> chunk = tokenize_documents([["a good film .", "the film ."]] * 2, tokenizer)
        >>> vocabulary = MaskingVocabulary.of(tokenizer)
        >>> keys, records, summary = make_records(chunk, vocabulary, ExampleOptions(), (0, 0, 0))
        >>> len(keys) == len(records) == summary.examples
        True
    """
    borders = chunk.documents.tolist()
    documents = [
        _Document(chunk.ids, chunk.sentences[a : b + 1]) for a, b in zip(borders, borders[1:])
    ]
    rng = random.Random("/".join(map(str, seed)))
    summary = PretrainingSummary(options.max_seq_length, documents=len(documents))
    records = []
    sizes = (options.max_seq_length, options.max_predictions_per_seq)
    for example in create_examples(documents, vocabulary, options, rng):
        summary.count(example)
        records.append(serialize_features(example_features(example, *sizes)))
    return [rng.getrandbits(64) for _ in records], records, summary


class _Document:
    """A document as a sequence of sentences, which are read from the chunk's ids when needed."""

    def __init__(self, ids: np.ndarray, splits: np.ndarray):
        self._ids, self._splits = ids, splits

    def __len__(self) -> int:
        return len(self._splits) - 1

    def __getitem__(self, index: int) -> list[int]:
        return self._ids[self._splits[index] : self._splits[index + 1]].tolist()


_LENGTH_DELIMITED = 2  # a type of protobuf fields
_FLOAT_LIST, _INT64_LIST = 2, 3  # field numbers in message Feature


def example_features(
    example: PretrainingExample, max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, list[int] | list[float]]:
    """Returns the features of an example by name, padded with zeros."""
    padding = [0] * (max_seq_length - len(example.token_ids))
    number = len(example.masked_positions)
    unused = [0] * (max_predictions_per_seq - number)
    return {
        "input_ids": example.token_ids + padding,
        "input_mask": [1] * len(example.token_ids) + padding,
        "segment_ids": example.segment_ids + padding,
        "masked_lm_positions": example.masked_positions + unused,
        "masked_lm_ids": example.masked_ids + unused,
        "masked_lm_weights": [1.0] * number + [0.0] * len(unused),
        "next_sentence_labels": [int(example.is_random_next)],
    }


def serialize_features(features: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
    """Serializes features, each of floats or of integers from 0, as a `tf.train.Example`.

    Example:
        >>> serialize_features({"x": [1]}).hex()
        '0a0c0a0a0a017812051a030a0101'
    """
    entries = []
    for name, values in features.items():
        if values and isinstance(values[0], float):
            kind, packed = _FLOAT_LIST, struct.pack(f"<{len(values)}f", *values)
        else:
            kind, packed = _INT64_LIST, b"".join(map(_varint, values))
        feature = _field(kind, _field(1, packed))
        entries.append(_field(1, _field(1, name.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


@functools.lru_cache(maxsize=1 << 18)
def _varint(value: int) -> bytes:
    """Encodes seven bits per byte, the lowest first; the top bit means that more bytes follow."""
    if value < 0:
        raise ValueError(f"Features must be at least 0. Received: {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
