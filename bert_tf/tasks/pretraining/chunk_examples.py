"""Tokenizes a chunk of documents and makes the records of one pass over it.

Nothing but the chunk, its number, the pass and the seed determines the records. TensorFlow is used
by the tokenizer alone, so that processes that make records do not import it.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.pretraining.document_chunks import token_splits
from bert_tf.tasks.pretraining.examples import ExampleOptions, MaskingVocabulary, create_examples
from bert_tf.tasks.pretraining.features import example_features, serialize_features
from bert_tf.tasks.pretraining.summary import PretrainingSummary

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
