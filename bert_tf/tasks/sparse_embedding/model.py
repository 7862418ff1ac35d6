"""Learned sparse vectors (SPLADE): a weight for every piece of the vocabulary.

Glossary: `n` or `B` texts, `T` sequence length, `H` hidden size, `V` vocabulary, `R` real tokens.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.base.optional_packages import require_package
from bert_tf.base.vectors import as_array
from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.serving_module import ServingModule
from bert_tf.ops.native import needs_static_shapes
from bert_tf.tasks.shared.vector_model import VectorModel
from bert_tf.tasks.sparse_embedding.loss import SpladeLoss

POOLINGS = ("max", "sum")
TERM_ACTIVATIONS = ("relu", "log1p_relu")
# Tokens whose logits are in memory at a time where no gradient is computed: 120 MB for the
# 30,522 pieces of BERT's vocabulary.
ROWS_AT_ONCE = 1024
# Texts whose dense vectors `encode` has in memory at a time: 60 MB for BERT's vocabulary.
TEXTS_ENCODED_AT_ONCE = 512


class WeightedTerm(NamedTuple):
    """A piece of the vocabulary and its weight in a text.

    Example:
        >>> WeightedTerm("paris", 1.5).piece
        'paris'
    """

    piece: str
    weight: float


@keras.saving.register_keras_serializable(package="bert_tf")
class BertSparseEncoder(VectorModel):
    """BERT with its masked-LM head, which gives each text a sparse vector over the vocabulary.

    The weight of a piece is the maximum of log(1 + relu(logit)) over the tokens of the text; pieces
    that are not in the text can have weights too. Queries and documents are compared by dot
    products, as in a search engine. The model is trained on tuples of lists like
    `BertSentenceEncoder`, with `compile(objective=SpladeLoss(...))` of
    `bert_tf.tasks.sparse_embedding`, which is also the loss of `fit` without `compile`. Without
    training, the vectors of a masked language model are not sparse.

    Memory: `predict` holds the logits of 1,024 tokens at a time, and the vectors of a batch,
    4 * B * V bytes. A training step holds the logits of all R real tokens of the batch, which take
    about 14 * R * V bytes with their gradient. For large batches, use
    `gradient_accumulation_steps`, or
    `SpladeLoss(CachedMultipleNegativesRankingLoss(scale=1.0, similarity="dot"))`, which encodes a
    batch part by part. With `jit_compile=True`, all positions have logits, also padding.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`.
        pooling: "max" or "sum" over the real tokens.
        activation: "relu", or "log1p_relu" for log(1 + log(1 + relu(logit))).
        max_active_dims: The number of largest weights that `encode` keeps; None keeps all.
        prompts: Texts that `encode` puts before other texts, by names such as "query".
        default_prompt_name: The prompt if `encode` gets none; None means no prompt.

    Call arguments:
        inputs: What the backbone takes, `[B, T]`, or `[B, K, T]` for K texts per example; or
            strings `[B]`, or a tuple of K times strings `[B]`.

    Returns:
        float32 `[B, V]` or `[B, K, V]`, without the limit of `max_active_dims`.

    Raises:
        UserError: If `pooling`, `activation` or `default_prompt_name` is unknown, or
            `max_active_dims` is out of range.

    Example:
        >>> encoder = bert_tf.BertSparseEncoder.from_pretrained("bert-base/")
        >>> history = encoder.fit((["who wrote it?", "why?"], ["Ada wrote it.", "It rains."]))
        >>> documents = encoder.encode(["Ada wrote it.", "It rains."], max_active_dims=16)
        >>> queries = encoder.encode(["who wrote it?"])
        >>> encoder.similarity(queries, documents).shape
        (1, 2)
        >>> [term.piece for term in encoder.decode(documents, top_k=2)[0]]
        [..., ...]
        >>> scores, rows = bert_tf.search.sparse_top_k(queries, documents, k=1)

    Reference: Formal et al. 2021 (arXiv 2109.10086), equations 1 and 2; sentence-transformers,
    `SparseEncoder`, whose directories it opens and writes, and `SpladePooling`.
    """

    objectives_with_labels = (
        "`SpladeLoss(MarginMSELoss())` of bert_tf.training for triplets with a teacher's margins"
    )

    def __init__(
        self,
        backbone: BertBackbone,
        pooling: str = "max",
        activation: str = "relu",
        max_active_dims: int | None = None,
        tokenizer=None,
        max_length: int | None = None,
        prompts: dict[str, str] | None = None,
        default_prompt_name: str | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, prompts, default_prompt_name, **kwargs)
        self.pooling = pooling
        self.activation = activation
        self.max_active_dims = max_active_dims
        self.check_options()
        self.masked_lm_head = self.built_layer(MaskedLMHead, backbone.config, name="masked_lm")
        self.built = True

    def check_options(self):
        super().check_options()
        require_one_of("pooling", self.pooling, POOLINGS)
        require_one_of("activation", self.activation, TERM_ACTIVATIONS)
        require_count("max_active_dims", self.max_active_dims)

    @property
    def vector_size(self) -> int:
        """V."""
        return self.backbone.config.vocab_size

    def default_objective(self):
        return SpladeLoss()

    def head(self, outputs, tokens, training=False):
        """Pools log(1 + relu(logits)) over the real tokens of each text; zeros without tokens.

        In training all logits are computed at once, as a gradient needs all of them; else those of
        `ROWS_AT_ONCE` tokens at a time, except for XLA.
        """
        states, is_max = outputs["sequence_output"], self.pooling == "max"  # [B, T, H]
        padding_mask = self.backbone.padding_mask_of(tokens)

        def logits_of(rows):
            return self.masked_lm_head(rows, word_embeddings=outputs["word_embeddings"])

        def weights_of(logits):
            weights = tf.math.log1p(tf.nn.relu(logits))
            return tf.math.log1p(weights) if self.activation == "log1p_relu" else weights

        batch, length = tf.unstack(tf.shape(padding_mask))
        if needs_static_shapes():
            logits = logits_of(tf.reshape(states, [-1, states.shape[-1]]))
            logits = tf.reshape(logits, [batch, length, self.vector_size])  # [B * T, V] ->
            logits = tf.where(padding_mask[:, :, tf.newaxis], logits, 0.0)  # 0 has no weight
            if is_max:  # the weights grow with the logits
                return weights_of(tf.reduce_max(logits, axis=1))
            return tf.reduce_sum(weights_of(logits), axis=1)

        rows = tf.boolean_mask(states, padding_mask)  # [B, T, H] -> [R, H]
        texts = tf.cast(tf.where(padding_mask)[:, 0], tf.int32)  # [R], the text of a row

        def add(pooled, part):
            logits = logits_of(rows[part])
            if is_max:
                best = tf.math.unsorted_segment_max(logits, texts[part], batch)  # [R, V] -> [B, V]
                both = tf.maximum(pooled, best)
            else:
                both = pooled + tf.math.unsorted_segment_sum(weights_of(logits), texts[part], batch)
            return tf.ensure_shape(both, pooled.shape)

        pooled = tf.zeros([batch, self.vector_size])
        if training:
            pooled = add(pooled, slice(None))
        else:
            _, pooled = tf.while_loop(
                lambda start, _: start < tf.shape(rows)[0],
                lambda start, pooled: (
                    start + ROWS_AT_ONCE,
                    add(pooled, slice(start, start + ROWS_AT_ONCE)),
                ),
                (0, pooled),
                parallel_iterations=1,
            )
        return weights_of(pooled) if is_max else pooled

    def terms(self, texts, **batching):
        """Returns the terms of each text; see `decode`."""
        columns = self.preprocessor.read_examples(texts)
        terms = self.decode(self.encode(columns, **batching))
        return terms[0] if columns.is_single else terms

    def encode(
        self,
        texts: str | Sequence[str],
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
        window_stride: int | None = None,
        window_pooling: str = "max",
        prompt_name: str | None = None,
        prompt: str | None = None,
        max_active_dims: int | None = None,
    ):
        """Returns the vectors of texts as a sparse matrix.

        Args:
            texts: Single texts as in `fit`, or one string.
            batch_size, token_budget, verbose, window_stride, window_pooling: See `predict`.
            prompt_name, prompt: See `BertSentenceEncoder.encode`.
            max_active_dims: The number of largest weights to keep; None means the model's.

        Returns:
            A `scipy.sparse.csr_array` float32 `[n, V]`; `[1, V]` for one string.

        Raises:
            UserError: If there is no tokenizer, an example has several texts, the prompt is
                unknown, `max_active_dims` is out of range, or scipy is not installed.
            DataError: If a text is missing or malformed.
        """
        sparse = require_package("scipy.sparse", "sparse vectors")
        require_count("max_active_dims", max_active_dims)
        count = self.max_active_dims if max_active_dims is None else max_active_dims
        columns = self.preprocessor.read_examples(texts)
        columns = self.prompted(columns, prompt_name, prompt)
        windows = {"window_stride": window_stride, "window_pooling": window_pooling}
        parts = []
        for start in range(0, max(columns.num_rows, 1), TEXTS_ENCODED_AT_ONCE):
            part = columns.select(slice(start, start + TEXTS_ENCODED_AT_ONCE))
            vectors = self.predict(part, batch_size, verbose, token_budget=token_budget, **windows)
            parts.append(sparse.csr_array(strongest(vectors, count)))
        return sparse.vstack(parts, format="csr")

    def decode(
        self, embeddings: Any, top_k: int | None = None
    ) -> list[list[WeightedTerm]] | list[WeightedTerm]:
        """Returns the terms of vectors as words.

        Args:
            embeddings: A sparse matrix or an array `[n, V]`, such as the result of `encode` or
                `predict`, or one vector `[V]`.
            top_k: The maximum number of terms of a vector; None returns all that are not zero.

        Returns:
            For each vector a list of `WeightedTerm`s, the largest weight first, or one list for a
            vector `[V]`.

        Raises:
            UserError: If `embeddings` have another shape, `top_k` is less than 1, there is no
                tokenizer, or scipy is not installed.
        """
        self.preprocessor.require_tokenizer()
        require_count("top_k", top_k)
        rows = sparse_rows(embeddings, self.vector_size, "embeddings")
        terms = weighted_terms(rows, self.pieces(), top_k)
        return terms[0] if np.ndim(embeddings) == 1 else terms

    def pieces(self) -> list[str]:
        """Returns the piece of each dimension of a vector; "" if the tokenizer has none."""
        vocabulary = self.tokenizer.vocabulary
        return [*vocabulary, *[""] * (self.vector_size - len(vocabulary))]

    def similarity(self, embeddings1: Any, embeddings2: Any) -> np.ndarray:
        """Returns the dot products of two lists of vectors.

        Args:
            embeddings1, embeddings2: Sparse matrices or arrays `[n, V]` and `[m, V]`; a vector
                `[V]` is one row.

        Returns:
            float32 `[n, m]`.

        Raises:
            UserError: If they have other shapes, or scipy is not installed.
        """
        first = sparse_rows(embeddings1, self.vector_size, "embeddings1")
        second = sparse_rows(embeddings2, self.vector_size, "embeddings2")
        return (first @ second.T).toarray().astype(np.float32)


TERMS = 512  # the most terms of a text if the model has no `max_active_dims`


class SparseEmbeddingModule(ServingModule):
    """Maps text, after the default prompt if any, to its terms, and token ids to the vector."""

    def of_tokens(self, tokens):
        return {"vector": self.model(tokens, training=False)}  # [B, V]

    def of_text(self, text):
        prompt = self.model.prompts.get(self.model.default_prompt_name, "")
        text = tf.strings.join([prompt, text]) if prompt else text
        vectors = self.model(self.model.tokenize(text), training=False)  # [B, V]
        size = min(self.model.max_active_dims or TERMS, self.model.vector_size)
        weights, ids = tf.math.top_k(vectors, size)  # [B, size]
        counts = tf.math.count_nonzero(weights, axis=1, dtype=tf.int32)  # [B]
        longest = tf.reduce_max(tf.concat([counts, [0]], axis=0))
        weights, ids = weights[:, :longest], ids[:, :longest]
        exists = weights > 0.0
        return {
            "term_count": counts,
            "term": tf.where(exists, tf.gather(tf.constant(self.model.pieces()), ids), ""),
            "term_id": tf.where(exists, ids, 0),
            "term_weight": weights,
        }


def sparse_rows(vectors: Any, size: int, name: str):
    """Returns vectors as a `scipy.sparse.csr_array` `[n, V]` of its own, without stored zeros.

    They are a sparse matrix or an array `[n, V]`, or one vector `[V]`; `size` is V, and `name`
    theirs in an error.

    Raises:
        UserError: If they have another shape, are no numbers, or scipy is not installed.
    """
    sparse = require_package("scipy.sparse", "sparse vectors")
    rows = vectors if sparse.issparse(vectors) else as_array(vectors, name)
    rows = rows.reshape(1, -1) if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != size:
        expected = f"be [n, {size}], with a column for each piece of the vocabulary"
        raise user_error(f"`{name}`", expected, f"{name}.shape={rows.shape}")
    rows = sparse.csr_array(rows, copy=True)
    rows.eliminate_zeros()
    return rows


def strongest(vectors: np.ndarray, count: int | None) -> np.ndarray:
    """Returns vectors `[n, V]` with the `count` largest weights of each; None for all."""
    if count is None or count >= vectors.shape[1]:
        return vectors
    others = np.argpartition(-vectors, count - 1, axis=1)[:, count:]  # [n, V - count]
    vectors = vectors.copy()
    np.put_along_axis(vectors, others, 0.0, axis=1)
    return vectors


def require_count(name: str, count: Any) -> None:
    """Raises `UserError` unless `count` is None or an integer of at least 1."""
    rule = "must be None or an integer of at least 1"
    require(count is None or (is_integer(count) and count >= 1), rule, UserError, **{name: count})


def weighted_terms(rows, pieces: list[str], top_k: int | None) -> list[list[WeightedTerm]]:
    """Returns the terms of each row of a CSR matrix, the largest weight first."""
    found = []
    for start, end in zip(rows.indptr, rows.indptr[1:]):
        ids, weights = rows.indices[start:end], rows.data[start:end]
        order = np.lexsort((ids, -weights))[:top_k]
        found.append([WeightedTerm(pieces[ids[i]], float(weights[i])) for i in order])
    return found
