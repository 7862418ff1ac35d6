"""The losses of finding the partner of a text among many candidates.

Glossary: `B` examples, `K` texts of an example, `D` size of a vector.
"""

import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, require_one_of
from bert_tf.training.losses.sentence_loss import SentenceLoss, checked_size
from bert_tf.training.losses.vector_distances import SIMILARITIES, comparable, own_similarities

RANKING_SCALE = 20.0  # sentence-transformers, MultipleNegativesRankingLoss


class MultipleNegativesRankingLoss(SentenceLoss):
    """Cross-entropy of finding the second text of each pair among those of the batch.

    The logits are scale * similarity. If an example has more texts, they are hard negatives for all
    texts of the batch. The task is harder in larger batches. A batch is what one replica computes
    at once, with `gradient_accumulation_steps` a part of its rows. Pairs of a text with itself
    (`fit((texts, texts))`) need no labels: dropout makes their vectors differ (SimCSE).

    Args:
        scale: The factor of the similarities.
        symmetric: Whether the first text of each pair is also to be found among those of the
            batch, for its second; the loss is the mean of both.
        similarity: "cosine" or "dot".
        no_duplicates: Whether `fit` on texts in memory makes batches in which no text is in two
            examples, where it would be a wrong negative. Examples for which no batch is left are
            not in that epoch, which is logged. Batches that shrink to one pair are an error.
        num_negatives: In training, each text is compared with its partner and with this number of
            the other candidates of the batch, drawn anew in each step. None means with all.
        in_batch_negatives: Whether the texts of other examples are negatives. False compares each
            text only with the other texts of its own example, of which there are then at least
            two: the partner and negatives, such as those of `negative_pairs`.

    Raises:
        UserError: If `scale` is not positive, `similarity` is unknown, `num_negatives` is less than
            1, or `symmetric` or `num_negatives` is given without negatives in the batch.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.MultipleNegativesRankingLoss(scale=20.0)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["capital of France?", "2 + 2?"], ["Paris", "4"]))

    Reference: Henderson et al. 2017 (arXiv 1705.00652), section 4.4; Gao et al. 2021 (SimCSE, arXiv
    2104.08821); Huang et al. 2013 (DSSM), section 3.2, for a few sampled negatives.
    """

    num_texts = (2, ...)
    needs_labels = False

    def __init__(
        self,
        scale: float = RANKING_SCALE,
        symmetric: bool = False,
        similarity: str = "cosine",
        no_duplicates: bool = False,
        num_negatives: int | None = None,
        in_batch_negatives: bool = True,
    ):
        require(scale > 0, "must be positive", UserError, scale=scale)
        require_one_of("similarity", similarity, SIMILARITIES)
        is_count = num_negatives is None or (is_integer(num_negatives) and num_negatives > 0)
        rule = "must be a positive integer or None"
        require(is_count, rule, UserError, num_negatives=num_negatives)
        given = {"in_batch_negatives": in_batch_negatives, "symmetric": symmetric}
        fits = in_batch_negatives or not (symmetric or num_negatives)
        rule = "must be True with `symmetric` or `num_negatives`, which need the batch"
        require(fits, rule, UserError, **given, num_negatives=num_negatives)
        self.scale = scale
        self.symmetric = symmetric
        self.no_duplicates = no_duplicates
        self.similarity = similarity
        self.num_negatives = num_negatives
        self.in_batch_negatives = in_batch_negatives
        if not in_batch_negatives:
            self.num_texts = (3, ...)

    def outputs(self, vectors):
        if not self.in_batch_negatives:
            return self.scale * own_similarities(vectors, self.similarity)  # [B, K - 1]
        texts = tf.unstack(comparable(vectors, self.similarity), axis=1)
        candidates = tf.concat(texts[1:], axis=0)  # [(K - 1) B, D], second texts first
        return self.scale * tf.matmul(texts[0], candidates, transpose_b=True)

    def training_outputs(self, vectors):
        outputs = self.outputs(vectors)
        if self.num_negatives is None:
            return outputs
        seed = tf.stack([self.random_seed(), 0])
        draws = tf.random.stateless_uniform(tf.shape(outputs), seed)
        draws = tf.linalg.set_diag(draws, tf.ones(tf.shape(outputs)[:1]))  # above all others
        count = tf.minimum(self.num_negatives + 1, tf.shape(outputs)[1])
        least = tf.math.top_k(draws, count).values[:, -1:]  # [B, 1]
        return tf.where(draws >= least, outputs, -np.inf)

    def _right(self, outputs):
        return tf.linalg.diag_part(outputs) if self.in_batch_negatives else outputs[:, 0]

    def losses(self, labels, outputs):
        # Not the fused cross-entropy, which fails for the empty last batch of a replica.
        right = self._right(outputs)
        losses = tf.reduce_logsumexp(outputs, axis=-1) - right
        if self.symmetric:  # of the columns of second texts, [B, B]
            columns = outputs[:, : tf.shape(outputs)[0]]
            losses = (losses + tf.reduce_logsumexp(columns, axis=0) - right) / 2.0
        return losses

    def hits(self, labels, outputs):
        return self._right(outputs) >= tf.reduce_max(outputs, axis=-1)


class CachedMultipleNegativesRankingLoss(MultipleNegativesRankingLoss):
    """`MultipleNegativesRankingLoss` for batches that are too large to be encoded at once.

    The texts are encoded twice, `mini_batch_size` examples at a time, so of what grows with the
    batch only the tokens, the vectors and their similarities `[B, B]` are in memory. Loss and
    gradient are those of the whole batch.

    Args:
        scale, symmetric, similarity, no_duplicates, **options: See `MultipleNegativesRankingLoss`.
        mini_batch_size: The maximum number of examples that are encoded at once. It changes speed
            and memory, not the result.

    Raises:
        UserError: See `MultipleNegativesRankingLoss`, or if `mini_batch_size` is less than 1.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.CachedMultipleNegativesRankingLoss(mini_batch_size=2)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Gao et al. 2021 (GradCache, arXiv 2101.06983); sentence-transformers, the loss of
    this name.
    """

    def __init__(
        self,
        scale: float = RANKING_SCALE,
        symmetric: bool = False,
        mini_batch_size: int = 32,
        similarity: str = "cosine",
        no_duplicates: bool = False,
        **options,
    ):
        super().__init__(scale, symmetric, similarity, no_duplicates, **options)
        self.mini_batch_size = checked_size(mini_batch_size)
