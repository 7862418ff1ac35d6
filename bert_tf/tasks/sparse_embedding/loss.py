"""The loss of `BertSparseEncoder`: one that compares vectors, and what keeps the vectors sparse.

Glossary: `B` examples, `K` texts of an example, `V` vocabulary.
"""

import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require
from bert_tf.training.losses.ranking_losses import MultipleNegativesRankingLoss
from bert_tf.training.losses.sentence_loss import SentenceLoss, sentence_loss

# sentence-transformers, the example of `SpladeLoss`
DOCUMENT_REGULARIZER_WEIGHT = 3e-5
QUERY_REGULARIZER_WEIGHT = 5e-5


class SpladeLoss(SentenceLoss):
    """A loss on sparse vectors, plus FLOPS regularization of queries and of documents.

    The first text of an example is its query, the others are documents. FLOPS is the sum over the
    vocabulary of the squared mean weight of a term, which is the cost of a search. As for
    `MultipleNegativesRankingLoss`, the mean is over the texts that one replica computes at once.
    Each example adds one part, the product of its vector and the mean vector.

    Args:
        loss: The `SentenceLoss` that compares the vectors, or its name; one without variables.
            None means `MultipleNegativesRankingLoss` of dot products.
        document_regularizer_weight, query_regularizer_weight: The factors of FLOPS.
        document_regularizer_threshold, query_regularizer_threshold: Vectors with at most so many
            terms count as zeros in FLOPS; None for no threshold.
        warmup_steps: The number of steps in which both factors grow from 0, quadratically.

    Raises:
        UserError: If a weight is negative, a threshold or `warmup_steps` is not an integer of at
            least 0, or `loss` is for single texts.

    Example:
        >>> encoder = bert_tf.BertSparseEncoder.from_pretrained("bert-base/")
        >>> loss = SpladeLoss(query_regularizer_weight=1e-3)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["capital of France?", "2 + 2?"], ["Paris", "4"]))
        >>> margins = SpladeLoss(bert_tf.training.MarginMSELoss())
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=margins)
        >>> encoder.fit((["capital of France?"], ["Paris"], ["Rome"]), [0.7])

    Reference: Formal et al. 2021 (arXiv 2109.10086), section 3; Paria et al. 2020 (arXiv
    2004.05665) for FLOPS; arXiv 2504.14839 for thresholds; sentence-transformers, `SpladeLoss`,
    `FlopsLoss` and `SpladeRegularizerWeightSchedulerCallback`, whose weights grow as ours do.
    """

    def __init__(
        self,
        loss: str | SentenceLoss | None = None,
        document_regularizer_weight: float = DOCUMENT_REGULARIZER_WEIGHT,
        query_regularizer_weight: float = QUERY_REGULARIZER_WEIGHT,
        document_regularizer_threshold: int | None = None,
        query_regularizer_threshold: int | None = None,
        warmup_steps: int = 0,
    ):
        if not (document_regularizer_weight >= 0 and query_regularizer_weight >= 0):
            raise UserError(
                "`document_regularizer_weight` and `query_regularizer_weight` must be at least 0. "
                f"Received: {document_regularizer_weight=}, {query_regularizer_weight=}"
            )
        counts = {
            "document_regularizer_threshold": document_regularizer_threshold,
            "query_regularizer_threshold": query_regularizer_threshold,
            "warmup_steps": warmup_steps,
        }
        for name, count in counts.items():
            rule = "must be an integer of at least 0"
            is_valid = count is None or (is_integer(count) and count >= 0)
            require(is_valid, rule, UserError, **{name: count})
        if loss is None:
            loss = MultipleNegativesRankingLoss(scale=1.0, similarity="dot")
        self.loss = sentence_loss(loss)
        self.document_regularizer_weight = document_regularizer_weight
        self.query_regularizer_weight = query_regularizer_weight
        self.document_regularizer_threshold = document_regularizer_threshold
        self.query_regularizer_threshold = query_regularizer_threshold
        self.warmup_steps = warmup_steps
        self.take_examples_of(self.loss)
        rule = "of SpladeLoss must compare a query with documents"
        require(1 not in self.num_texts, rule, UserError, loss=self.loss.description())

    def build(self, vector_size, initializer_range):
        self.loss.build(vector_size, initializer_range)
        rule = "of SpladeLoss must have no variables"
        require(not self.loss.variables, rule, UserError, loss=self.loss.description())

    def description(self):
        return f"{super().description()} of {self.loss.description()}"

    def outputs(self, vectors):
        return self.loss.outputs(vectors), self._regularization(vectors)

    def training_outputs(self, vectors):
        return self.loss.training_outputs(vectors), self._regularization(vectors)

    def _regularization(self, vectors):
        queries = _flops(vectors[:, :1], self.query_regularizer_threshold)
        documents = _flops(vectors[:, 1:], self.document_regularizer_threshold)
        weighted = self.query_regularizer_weight * queries
        weighted += self.document_regularizer_weight * documents
        return weighted * self._share_of_weights()

    def _share_of_weights(self):
        if not self.warmup_steps or self.step is None:
            return 1.0
        share = tf.cast(self.step, tf.float32) / self.warmup_steps
        return tf.square(tf.minimum(share, 1.0))

    def losses(self, labels, outputs):
        compared, regularization = outputs
        return self.loss.losses(labels, compared) + regularization

    def hits(self, labels, outputs):
        return self.loss.hits(labels, outputs[0])


def _flops(vectors, threshold):
    """Returns the parts of the examples, `[B]`, whose mean is FLOPS of vectors `[B, K, V]`."""
    if threshold is not None:
        counts = tf.math.count_nonzero(vectors, axis=-1, keepdims=True)  # [B, K, 1]
        vectors = tf.where(counts > threshold, vectors, 0.0)
    mean = tf.reduce_mean(vectors, axis=[0, 1])  # [V]
    # Σ mean² = mean over the examples of Σ (mean of an example's vectors) · mean
    return tf.linalg.matvec(tf.reduce_mean(vectors, axis=1), mean)
