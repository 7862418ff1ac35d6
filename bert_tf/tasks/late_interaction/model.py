"""A vector for every token of queries and documents, which are compared token by token.

Glossary: `B` examples, `K` texts of an example, `T` tokens, `Tq` tokens of a query, `D` size of a
vector, `S` tokens of several texts.

Reference: Khattab and Zaharia 2020 (arXiv 2004.12832); stanford-futuredata/ColBERT,
`colbert/modeling/colbert.py`.
"""

import string
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.labels import are_labels_of_tokens, check_ids
from bert_tf.inputs.token_inputs import one_sequence_per_row
from bert_tf.layers.attention.token_layout import real_tokens_first
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.models.task_model import TaskModel
from bert_tf.tasks.late_interaction.losses import DocumentRankingLoss, ranks_right_document_first
from bert_tf.tasks.late_interaction.token_vectors import TokenVectors, max_sim_scores, sum_of_best
from bert_tf.tasks.shared.ranked_documents import RanksDocuments
from bert_tf.training.on_logits import loss_on_logits
from bert_tf.training.traced_steps import predict_batches


@keras.saving.register_keras_serializable(package="bert_tf")
class BertLateInteractionEncoder(RanksDocuments, TaskModel):
    """BERT with a vector of length 1 for each token, and MaxSim scores of queries and documents.

    The score of a document is the sum, over the tokens of the query, of the largest cosine with a
    token of the document. Queries and documents are encoded separately, so the vectors of documents
    can be stored. The comparison is more accurate than that of the single vectors of a
    `BertSentenceEncoder`. To rank the same documents for many queries, encode them once and call
    `bert_tf.search.max_sim_top_k`.

    `fit` and `evaluate` take tuples of K lists: queries, documents that fit and, optionally, others
    that do not. `y` may be a teacher's scores `[n, K - 1]` of these documents, which the model then
    learns. With token dictionaries, `y` is these scores, or int `[n]`, the number of the document
    that fits.

    Args:
        backbone, tokenizer: See `TaskModel`; special tokens in a text, such as `[MASK]`, are kept
            whole.
        dim: D, the size of the vectors.
        query_max_length: The maximum number of tokens of a query.
        query_marker, document_marker: The piece after `[CLS]` that marks a query or a document;
            None for none. Spaces after it do not count if the vocabulary has none.
        query_augmentation: Whether queries are filled up with `[MASK]` to `query_max_length`; the
            vectors of these tokens count, too.
        attend_to_mask_tokens: Whether the other tokens of a query attend to these `[MASK]`.
        mask_punctuation: Whether the vectors of punctuation in documents are left out.
        max_length: The maximum number of tokens of a document, `[CLS]` and `[SEP]` included. None
            means the number of the model's positions.

    Call arguments:
        inputs: What the backbone takes, `[B, K, T]`: a query, of which the first `query_max_length`
            tokens are read, and K - 1 documents; or a tuple of K times strings `[B]`. Or single
            texts, `[B, T]` or strings `[B]`, which are documents where `is_query`, bool `[B]`, does
            not say otherwise.
        in_batch: Whether a query is compared with the documents of all examples.

    Returns:
        Scores float32 `[B, K - 1]`; with `in_batch` `[B, B * (K - 1)]`, beginning with those of the
        query's own documents. For single texts, vectors float32 `[B, T, D]`, zeros at tokens that
            do not count.

    Raises:
        UserError: If an argument is out of range, or a marker is not in the vocabulary.

    Example:
        >>> encoder = bert_tf.BertLateInteractionEncoder.from_pretrained("bert-base/", dim=16)
        >>> queries, documents = ["who wrote it?", "is it dry?"], ["Ada wrote it.", "It rains."]
        >>> encoder.fit((queries, documents))
        >>> encoder.score(queries, documents).shape
        (2,)
        >>> corpus = encoder.encode_documents(documents)
        >>> scores, rows = bert_tf.search.max_sim_top_k(encoder.encode_queries(queries), corpus, 1)
        >>> rows.shape
        (2, 1)

    Reference: Khattab and Zaharia 2020 (ColBERT, arXiv 2004.12832); Santhanam et al. 2022
    (ColBERTv2, arXiv 2112.01488). It opens and writes ColBERT's directories.
    """

    query_max_length = Held()
    query_marker = Held()
    document_marker = Held()
    query_augmentation = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        dim: int = 128,
        query_max_length: int = 32,
        query_marker: str | None = "[unused0]",
        document_marker: str | None = "[unused1]",
        query_augmentation: bool = True,
        attend_to_mask_tokens: bool = False,
        mask_punctuation: bool = True,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        require(is_integer(dim) and dim >= 1, "must be an integer of at least 1", dim=dim)
        self.dim = dim
        self.query_max_length = query_max_length
        self.query_marker = query_marker
        self.document_marker = document_marker
        self.query_augmentation = query_augmentation
        self.attend_to_mask_tokens = attend_to_mask_tokens
        self.mask_punctuation = mask_punctuation
        self.check_options()
        initializer = truncated_normal(backbone.config.initializer_range)
        options = {"use_bias": False, "kernel_initializer": initializer, "name": "projection"}
        self.projection = self.built_layer(keras.layers.Dense, dim, **options)
        self._in_batch_negatives = True
        self.built = True

    def check_options(self):
        super().check_options()
        limit, length = self.backbone.config.max_position_embeddings, self.query_max_length
        is_valid = is_integer(length) and 3 <= length <= limit
        rule = f"must be in [3, {limit}] (max_position_embeddings)"
        require(is_valid, rule, query_max_length=length)
        if self.tokenizer is None:
            return
        # Matches stanford-futuredata/ColBERT: `[MASK]` in a text is one token. Programs that put
        # the marker into the text would otherwise split it.
        self.preprocessor.follow(tokenizer=self.tokenizer.keeping_special_tokens)
        if self.query_augmentation:
            self.tokenizer.require_mask_token()
        for name in ("query_marker", "document_marker"):
            marker = getattr(self, name)
            pieces = {None, *self.tokenizer.vocabulary}
            if marker not in pieces and marker.rstrip(" ") in pieces:
                self.preprocessor.follow(**{name: marker.rstrip(" ")})
            else:
                rule = "must be a piece of the vocabulary, or None for none"
                require(marker in pieces, rule, **{name: marker})

    @property
    def in_batch_negatives(self) -> bool:
        """The argument of `compile`."""
        return self._in_batch_negatives

    def compile(
        self,
        optimizer="adam",
        loss="auto",
        metrics=None,
        *,
        in_batch_negatives: bool = True,
        **kwargs,
    ):
        """Compiles as Keras does; the loss defaults to `DocumentRankingLoss`.

        Args:
            optimizer, metrics, **kwargs: See `TrainingModel.compile`.
            loss: A loss on the scores; `DocumentRankingLoss("margin_mse")` for a teacher's margins.
            in_batch_negatives: Whether the documents of other queries of the batch count as wrong.
                The batch is the part that one replica computes at once, also with
                `gradient_accumulation_steps`. It needs memory for B * B * (K - 1) * Tq * T cosines.

        Raises:
            UserError: See `TrainingModel.compile`, and for a loss of probabilities.
        """
        self._in_batch_negatives = in_batch_negatives
        loss = DocumentRankingLoss() if loss == "auto" else loss_on_logits(loss)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        self._compile_options["in_batch_negatives"] = in_batch_negatives

    def read_labels(self, y, x):
        y = super().read_labels(y, x)
        if are_labels_of_tokens(y, x) and isinstance(self.loss, DocumentRankingLoss):
            if y.size == len(y):
                check_ids(y, np.shape(x["token_ids"])[1] - 1, "Numbers of documents")
        return y

    def default_compile(self, y):
        accuracy = keras.metrics.MeanMetricWrapper(ranks_right_document_first, name="accuracy")
        return {**super().default_compile(y), "metrics": [accuracy]}

    def forward(self, x, y, training):
        tokens, in_batch = self.tokens_of(x), self.in_batch_negatives
        is_ranking = isinstance(self.loss, DocumentRankingLoss)
        if is_ranking and not in_batch and tokens["token_ids"].shape[1] == 2:
            expected = "have several documents with `in_batch_negatives=False`"
            received = "one document. Pass (queries, positives, negatives)."
            raise user_error("An example", expected, received)
        return self(tokens, training=training, in_batch=in_batch)

    def call(self, inputs, training=False, in_batch=False):
        tokens = self.tokens_of(inputs)
        ids = tokens["token_ids"]
        if ids.shape.rank == 2:
            vectors, _ = self.token_vectors(tokens, training)
            return vectors
        batch, count, length = keras.ops.shape(ids)
        if ids.shape[1] is not None and ids.shape[1] < 2:
            expected = "be [B, K, T]: a query and at least one document"
            raise user_error("`token_ids`", expected, f"shape={ids.shape}")
        rows = one_sequence_per_row(tokens)  # [B, K, T] -> [B * K, T]
        rows["is_query"] = tf.tile(tf.range(count) == 0, [batch])
        vectors, mask = self.token_vectors(rows, training)
        vectors = tf.reshape(vectors, [batch, count, length, self.dim])
        mask = tf.reshape(mask, [batch, count, length])
        # The sum over one text, or over none in a batch without rows.
        queries = tf.reduce_sum(vectors[:, :1], axis=1)  # [B, T, D]
        query_mask = tf.reduce_any(mask[:, :1], axis=1)  # [B, T]
        columns = real_tokens_first(query_mask)[:, : self.query_max_length]  # [B, Tq]
        queries = tf.gather(queries, columns, batch_dims=1)  # [B, Tq, D]
        query_mask = tf.gather(query_mask, columns, batch_dims=1)
        compared = _of_batch if in_batch else _of_examples
        return compared(queries, query_mask, vectors[:, 1:], mask[:, 1:])

    def token_vectors(
        self, tokens: dict[str, tf.Tensor], training: bool = False
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the vectors of single texts, and which of them count.

        They are float32 `[B, T, D]`, zeros where a vector does not count, and bool `[B, T]`; for
        the inputs `[B, T]` see `call`.
        """
        ids, counts, attended = tokens["token_ids"], self._counts(tokens), None
        has_unattended = self.query_augmentation and not self.attend_to_mask_tokens
        if "is_query" in tokens and has_unattended:
            mask = self.backbone.padding_mask_of(tokens)
            # The `[MASK]` after the last other token: a text may hold `[MASK]` itself.
            is_text = mask & tf.not_equal(ids, self._known_tokenizer().mask_token_id)
            is_followed = tf.cumsum(tf.cast(is_text, tf.int32), axis=1, reverse=True) > 0
            attended = mask & (is_followed | ~_queries(tokens))
        outputs = self.backbone(tokens, training=training, attended_mask=attended)
        states = outputs["sequence_output"]
        rows = self.projection(tf.reshape(states, [-1, states.shape[-1]]))  # [B * T, D]
        rows = tf.math.l2_normalize(tf.cast(rows, tf.float32), axis=-1)
        vectors = tf.reshape(rows, [*keras.ops.shape(ids), self.dim])
        return tf.where(counts[..., tf.newaxis], vectors, 0.0), counts

    def _counts(self, tokens):
        """Returns which vectors count, bool `[B, T]`: of documents not those of punctuation."""
        mask = self.backbone.padding_mask_of(tokens)
        if not self.mask_punctuation:
            return mask
        ids = tf.convert_to_tensor(tokens["token_ids"])[..., tf.newaxis]
        is_punctuation = tf.reduce_any(tf.equal(ids, self._punctuation_ids()), axis=-1)
        return mask & (~is_punctuation | _queries(tokens))

    def _punctuation_ids(self):
        tokenizer = self._known_tokenizer()
        ids = {tokenizer.token_to_id(symbol) for symbol in string.punctuation}
        # A symbol that the vocabulary lacks is no punctuation: other words are unknown, too.
        return np.array(sorted(ids - {tokenizer.unk_token_id}), np.int32)

    def _known_tokenizer(self):
        rule = "must be given: it says which tokens are `[MASK]` and punctuation"
        fix = "Pass `tokenizer=BertTokenizer(vocab_file)`."
        require(self.tokenizer is not None, rule, UserError, fix, tokenizer=None)
        return self.tokenizer

    def score_pairs(self, pairs, **batching):
        """Returns what `score` does, for pairs of a query and a document."""
        columns = self.preprocessor.read_examples(pairs)
        if len(columns) != 2:
            expected = "be pairs, (queries, documents)"
            raise user_error("Texts", expected, f"{len(columns)} texts in an example")
        queries = self.encode_queries(columns[0], **batching)
        scores = max_sim_scores(queries, self.encode_documents(columns[1], **batching))
        return scores[0] if columns.is_single else scores

    def encode_queries(
        self,
        queries: str | Sequence[str],
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> TokenVectors | np.ndarray:
        """Returns the vectors of queries, including those of their `[MASK]`.

        Args:
            queries: n strings, or one.
            batch_size, token_budget: See `predict`.
            verbose: 1 shows a progress bar.

        Returns:
            The `TokenVectors` of n texts, or float32 `[tokens, D]` of one string.

        Raises:
            UserError: If there is no tokenizer, or an example has several texts.
            DataError: If a text is missing or malformed.
        """
        return self._encoded(queries, True, batch_size, token_budget, verbose)

    def encode_documents(
        self,
        documents: str | Sequence[str],
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> TokenVectors | np.ndarray:
        """Returns the vectors of documents, with `mask_punctuation` without those of punctuation.

        For the arguments, the results and the errors see `encode_queries`.
        """
        return self._encoded(documents, False, batch_size, token_budget, verbose)

    def _encoded(self, texts, is_query, batch_size, token_budget, verbose):
        preprocessor = self.preprocessor
        columns = preprocessor.read_examples(texts)
        if len(columns) != 1:
            received = f"{len(columns)} texts in an example. Encode each list by itself."
            raise user_error("Texts", "be one list of strings", received)
        rows = preprocessor.text_rows(columns[0], is_query)
        vectors: list[np.ndarray | None] = [None] * len(rows)
        batches = predict_batches(self, rows, batch_size, verbose, token_budget=token_budget)
        counts = np.ones(len(rows.token_ids), bool)  # those of `_counts`
        if self.mask_punctuation and not is_query:
            counts = np.isin(rows.token_ids, self._punctuation_ids(), invert=True)
        for numbers, outputs in batches:
            for number, row in zip(numbers, outputs):
                kept = counts[slice(*rows.row_splits[number : number + 2])]
                vectors[number] = row[: len(kept)][kept]
        if columns.is_single:
            return vectors[0]
        splits = np.cumsum([0, *map(len, vectors)])
        return TokenVectors(np.concatenate([np.zeros([0, self.dim], np.float32), *vectors]), splits)

    def document_scores(self, query, documents, **batching):
        vectors = self.encode_documents(documents, **batching)
        return max_sim_scores(self.encode_queries([query]), vectors)


def _of_examples(queries, query_mask, documents, document_mask):
    """Returns the scores of the documents of each query, `[B, K - 1]`."""
    similarities = tf.einsum("bqd,bktd->bkqt", queries, documents)  # [B, K - 1, Tq, T]
    return sum_of_best(similarities, query_mask[:, tf.newaxis], document_mask)


def _of_batch(queries, query_mask, documents, document_mask):
    """Returns the scores of all documents, first of each query's own: `[B, B * (K - 1)]`."""
    batch, count = keras.ops.shape(documents)[:2]
    similarities = tf.einsum("bqd,cktd->bckqt", queries, documents)  # [B, B, K - 1, Tq, T]
    scores = sum_of_best(similarities, query_mask[:, tf.newaxis, tf.newaxis], document_mask)
    places = tf.range(batch)
    order = (places[:, tf.newaxis] + places) % tf.maximum(batch, 1)  # [B, B]: i, i + 1, …, i - 1
    own_first = tf.gather(scores, order, batch_dims=1)  # [B, B, K - 1]
    return tf.reshape(own_first, [batch, batch * count])


def _queries(tokens):
    """Returns which single texts are queries, bool `[B, 1]`, or False."""
    return tf.cast(tokens.get("is_query", [False]), tf.bool)[:, tf.newaxis]
