"""The vectors of the tokens of texts without padding, and MaxSim, how well two texts fit by them.

    score(q, d) = sum over the tokens i of q of max over the tokens j of d of q[i] . d[j]

Glossary: `n` texts, `S` tokens of all of them, `Tq` and `Td` tokens of the longest query and
document, `D` size of a vector.

Reference: Khattab and Zaharia 2020 (ColBERT, arXiv 2004.12832), section 3.3.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.base.vectors import as_array, as_finite_floats
from bert_tf.errors import UserError, user_error
from bert_tf.inputs.traced import traced

FLOATS_AT_ONCE = 8 * 2**20  # of similarities and vectors: 32 MiB


@dataclasses.dataclass(frozen=True, eq=False)
class TokenVectors:
    """A vector for each token of n texts, one text after the other, without padding.

    `len(vectors)` is n, `vectors[i]` the array `[tokens, D]` of a text, and `vectors[i:j]` the
    `TokenVectors` of some texts.

    Args:
        vectors: Floats `[S, D]`; can be a `np.memmap`.
        row_splits: Integers `[n + 1]`: where each text begins, and S at the end, as in
            `tf.RaggedTensor`. Every text has a vector.

    Raises:
        UserError: If the shapes do not fit, or a text has no vector.

    Example:
        >>> vectors = TokenVectors(np.eye(3, dtype=np.float32), [0, 2, 3])
        >>> len(vectors), vectors[0].shape, len(vectors[:1])
        (2, (2, 3), 1)
    """

    vectors: np.ndarray
    row_splits: np.ndarray

    def __post_init__(self):
        vectors = as_array(self.vectors, "vectors")
        splits = np.asarray(self.row_splits)
        is_valid = vectors.ndim == 2 and splits.ndim == 1 and splits.dtype.kind in "iu"
        is_valid = is_valid and splits.size > 0 and splits[0] == 0 and splits[-1] == len(vectors)
        if not is_valid or np.any(np.diff(splits.astype(np.int64)) < 1):
            raise UserError(
                "`vectors` must be [S, D], and `row_splits` integers [n + 1] that begin with 0, "
                "end with S and increase, because every text has a vector. Received: "
                f"vectors.shape={vectors.shape}, row_splits={splits}"
            )
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "row_splits", splits.astype(np.int64))

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, index):
        if not isinstance(index, slice):
            index = range(len(self))[index]
            return self.vectors[self.row_splits[index] : self.row_splits[index + 1]]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise UserError(f"`vectors[i:j]` must have the step 1. Received: step={step}")
        splits = self.row_splits[start : max(start, stop) + 1]
        return TokenVectors(self.vectors[splits[0] : splits[-1]], splits - splits[0])

    @property
    def longest(self) -> int:
        """The largest number of vectors of a text; 0 without texts."""
        return int(np.diff(self.row_splits).max(initial=0))

    def ragged(self) -> tf.RaggedTensor:
        """Returns them as a ragged tensor float32 `[n, (tokens), D]`."""
        vectors = tf.constant(np.asarray(self.vectors, np.float32))
        return tf.RaggedTensor.from_row_splits(vectors, self.row_splits, validate=False)


def max_sim_scores(queries: TokenVectors, documents: TokenVectors) -> np.ndarray:
    """Returns how well each document fits the query at its place, by blocks.

    Args:
        queries: n queries, or one for all documents.
        documents: n documents.

    Returns:
        float32 `[n]`.

    Raises:
        UserError: See `require_comparable`, or if a vector is not finite, or there is neither one
            query nor one for each document.

    Example:
        >>> vectors = bert_tf.tasks.late_interaction.TokenVectors
        >>> query = vectors(np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 2])
        >>> documents = vectors(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), [0, 1, 3])
        >>> max_sim_scores(query, documents).round(2)
        array([1. , 1.6], dtype=float32)
    """
    require_comparable(queries, documents)
    is_one = len(queries) == 1
    if not is_one and len(queries) != len(documents):
        received = f"{len(queries)} queries, {len(documents)} documents"
        raise user_error("`queries`", "be one query, or one for each document", received)
    lengths = (queries.longest, documents.longest)
    floats = lengths[0] * lengths[1] + sum(lengths) * documents.vectors.shape[1]
    size = max(1, FLOATS_AT_ONCE // max(1, floats))
    scores = [np.zeros([0], np.float32)]
    for start in range(0, len(documents), size):
        part = slice(start, start + size)
        query = _checked(queries if is_one else queries[part], "queries")
        scores.append(_max_sim()(query, _checked(documents[part], "documents")).numpy())
    return np.concatenate(scores)


def max_sim(queries: tf.RaggedTensor, documents: tf.RaggedTensor) -> tf.Tensor:
    """Returns the MaxSim scores `[n]` of queries and documents, ragged `[n, (tokens), D]`."""
    texts = queries, documents
    masks = [tf.sequence_mask(text.row_lengths()) for text in texts]
    query, document = (text.to_tensor() for text in texts)
    similarities = tf.matmul(query, document, transpose_b=True)  # [n, Tq, Td]
    return sum_of_best(similarities, *masks)


_VECTORS = tf.RaggedTensorSpec([None, None, None], tf.float32, ragged_rank=1)
_max_sim = traced(max_sim, [_VECTORS, _VECTORS])


def sum_of_best(
    similarities: tf.Tensor, query_mask: tf.Tensor, document_mask: tf.Tensor
) -> tf.Tensor:
    """Returns the MaxSim scores `[...]` of padded queries and documents.

    `similarities` are the dot products of their tokens, `[..., Tq, Td]`; the masks, bool `[...,
    Tq]` and `[..., Td]` (or with dimensions of 1), say which tokens count.
    """
    similarities = tf.where(document_mask[..., tf.newaxis, :], similarities, -np.inf)
    best = tf.reduce_max(similarities, axis=-1)  # [..., Tq]
    return tf.reduce_sum(tf.where(query_mask, best, 0.0), axis=-1)


def require_comparable(queries: TokenVectors, documents: TokenVectors) -> None:
    """Raises `UserError` unless both are `TokenVectors` of the same size D.

    Example:
        >>> require_comparable(TokenVectors(np.eye(2), [0, 2]), TokenVectors(np.eye(2), [0, 1, 2]))
    """
    if not isinstance(queries, TokenVectors) or not isinstance(documents, TokenVectors):
        expected = "be TokenVectors, as `encode_queries` and `encode_documents` return them"
        received = f"{type(queries).__name__}, {type(documents).__name__}"
        raise user_error("`queries` and `documents`", expected, received)
    sizes = queries.vectors.shape[1], documents.vectors.shape[1]
    if sizes[0] != sizes[1]:
        received = f"{sizes[0]} and {sizes[1]}"
        raise user_error("Vectors of queries and of documents", "have the same size", received)


def _checked(texts, name):
    as_finite_floats(texts.vectors, False, name)
    return texts.ragged()
