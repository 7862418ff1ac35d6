"""What `BertLateInteractionEncoder` reads: queries with documents, each encoded by itself.

A query is `[CLS] [unused0] query [SEP] [MASK] [MASK] …`, a document `[CLS] [unused1] document
[SEP]`.

Glossary: `n` examples of K texts, a query and documents; `T` tokens.

Reference: stanford-futuredata/ColBERT, `colbert/modeling/tokenization`.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.labels import read_regression_labels
from bert_tf.inputs.token_rows import RaggedRows, TokenizedTexts
from bert_tf.inputs.traced import IDS, SPLITS, traced
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.shared.preprocessors import ListPreprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class LateInteractionPreprocessor(ListPreprocessor):
    """Maps queries with K - 1 documents each to tokens `[B, K, T]`.

    For the arguments see `BertLateInteractionEncoder`; `max_length` is that of documents.
    """

    query_max_length: int = 32
    query_marker: str | None = None
    document_marker: str | None = None
    query_augmentation: bool = True

    @property
    def static_length(self):
        length = max(self.max_sequence_length, self.query_max_length)
        return length if self.has_static_shapes else None

    def targets(self, y, x):
        """Returns scores of a teacher `[n, K - 1]`; else 0, the first document.

        Raises:
            UserError: If there is one document for a query, and `y`.
        """
        if not isinstance(x, TextColumns):
            return super().targets(y, x)
        if y is None:
            return np.zeros(x.num_rows, np.int32)
        rule = "must be None for queries with one document, which is the one that fits"
        fix = "Scores of a teacher are for several documents."
        require(len(x) >= 3, rule, UserError, fix, y=type(y).__name__)
        return read_regression_labels(y, len(x) - 1)

    def text_tokens(self, texts: tf.Tensor, is_query: bool) -> dict[str, tf.Tensor]:
        """Returns single texts `[B]` as tokens `[B, T]`; of queries with `is_query` `[B]`."""
        tokens = self._padded(self.ids(texts, is_query))
        if is_query:
            tokens["is_query"] = tf.ones_like(tokens["padding_mask"][:, 0])  # bool [B]
        return tokens

    def tokenize(self, *texts):
        """Returns strings, K times `[B]`, as tokens `[B, K, T]`; of single texts as documents."""
        queries, *documents = texts
        if not documents:
            return self.text_tokens(queries, is_query=False)
        count = len(texts)
        rows = [self.ids(queries, is_query=True), self.ids(tf.concat(documents, axis=0))]
        tokens = self._padded(tf.concat(rows, axis=0))  # [K * B, T]

        def by_example(values):
            shape = [count, -1, tf.shape(values)[1]]
            values = tf.transpose(tf.reshape(values, shape), [1, 0, 2])  # -> [B, K, T]
            return tf.ensure_shape(values, [None, count, self.static_length])

        return {name: by_example(values) for name, values in tokens.items()}

    def _padded(self, ids):
        # TensorFlow pads a batch without rows to no columns, even where all have the same length.
        shape = [None, self.static_length or ids.shape[1]]
        padded = ids.to_tensor(self.tokenizer.pad_token_id, shape=shape)
        mask = tf.sequence_mask(ids.row_lengths(), tf.shape(padded)[1])
        mask = tf.ensure_shape(mask, padded.shape)
        return {"token_ids": padded, "segment_ids": tf.zeros_like(padded), "padding_mask": mask}

    def ids(self, texts: tf.Tensor, is_query: bool = False) -> tf.RaggedTensor:
        """Returns the ids of strings `[n]`, ragged int32 `[n, (T)]`."""
        self.require_tokenizer()
        length = self._length_without_marker(is_query)
        ids = self.tokenizer(texts, max_length=length, ragged=True)["token_ids"]
        return completed(*self._completion(is_query), ids)

    def text_ids(self, texts: np.ndarray, is_query: bool = False) -> tf.RaggedTensor:
        """Returns the `ids` of many texts in memory."""
        self.require_tokenizer()
        length = self._length_without_marker(is_query)
        rows = TokenizedTexts.of(self.tokenizer, (texts,), length)
        with tf.device("CPU:0"):
            return _completed_eagerly(*self._completion(is_query))(rows.ragged(rows.token_ids))

    def _length_without_marker(self, is_query):
        length = self.query_max_length if is_query else self.max_sequence_length
        return length - (self._marker(is_query) is not None)

    def _marker(self, is_query):
        return self.query_marker if is_query else self.document_marker

    def _completion(self, is_query):
        """Returns the options of `completed`."""
        marker, tokenizer = self._marker(is_query), self.tokenizer
        marker_id = None if marker is None else tokenizer.token_to_id(marker)
        is_filled = is_query and self.query_augmentation
        return marker_id, (tokenizer.mask_token_id, self.query_max_length) if is_filled else None

    def example_rows(self, columns):
        if len(columns) == 1 and not columns.num_rows:
            columns = TextColumns(columns * 2)  # no queries, and no documents
        if len(columns) < 2:
            expected = "be a query with one document or more"
            raise user_error("An example", expected, f"one text. {self.examples.form}")
        count = len(columns)
        # [n, (T)] K times -> [n * K, (T)], the texts of an example together
        places = np.arange(count * columns.num_rows).reshape(count, -1).T.reshape(-1)
        texts = self.text_ids(columns[0], True), self.text_ids(np.concatenate(columns[1:]))
        ids = _gathered_eagerly()(*texts, places)
        with tf.device("CPU:0"):
            return RaggedRows(ids, tf.zeros_like(ids), self.tokenizer.pad_token_id, count)

    def encode(self, columns, window_stride=None):
        """Returns the examples as rows; the model compares their queries and documents."""
        return self.example_rows(columns)

    def text_rows(self, texts: np.ndarray, is_query: bool) -> RaggedRows:
        """Returns queries, or documents, each a row."""
        ids = self.text_ids(texts, is_query)
        rows = RaggedRows(ids, tf.zeros_like(ids), self.tokenizer.pad_token_id)
        if is_query:
            rows.inputs = {"is_query": np.ones(len(rows), bool)}
        return rows


def completed(
    marker_id: int | None, filling: tuple[int, int] | None, ids: tf.RaggedTensor
) -> tf.RaggedTensor:
    """Returns ragged ids int32 `[n, (T)]` with the marker after `[CLS]`, and filled up.

    `filling` are the token and the length to fill up with; None where rows are not filled up.
    """
    if marker_id is not None:
        markers = tf.fill([ids.nrows(), 1], tf.constant(marker_id, ids.dtype))
        ids = tf.concat([ids[:, :1], markers, ids[:, 1:]], axis=1)
    if filling is not None:
        mask_id, length = filling
        ids = ids.to_tensor(mask_id, shape=[None, length])
        ids = tf.RaggedTensor.from_tensor(ids, row_splits_dtype=tf.int64)
    return ids


_completed_eagerly = traced(completed, [IDS])
_gathered_eagerly = traced(
    lambda queries, documents, places: tf.gather(tf.concat([queries, documents], 0), places),
    [IDS, IDS, SPLITS],
)


class LateInteractionModule(ServingModule):
    """Maps a query and a document to a score, and queries or documents to vectors of tokens."""

    def of_text(self, query, document):
        outputs = self.of_tokens(self.model.tokenize(query, document))  # [B, 1]
        return {"score": outputs["logits"][:, 0], **outputs}

    def queries(self, text):
        """Returns the vectors of queries."""
        return self._vectors(text, True)

    def documents(self, text):
        """Returns the vectors of documents."""
        return self._vectors(text, False)

    def _vectors(self, text, is_query):
        tokens = self.model.preprocessor.text_tokens(text, is_query)
        vectors, counts = self.model.token_vectors(tokens)  # [B, T, D], [B, T]
        kept = tf.ragged.boolean_mask(vectors, counts)  # [B, (tokens), D]
        return {
            "vector_count": tf.cast(kept.row_lengths(), tf.int32),
            "vectors": tf.ensure_shape(kept.to_tensor(), [None, None, self.model.dim]),
        }
