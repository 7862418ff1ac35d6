"""The ranking loss whose wrong negatives another encoder finds.

Glossary: `B` examples, `K` texts of an example, `D` and `G` sizes of vectors, `C` candidates of a
text.
"""

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.training.losses.sentence_loss import SentenceLoss, checked_size

TEMPERATURE = 0.01  # sentence-transformers, GISTEmbedLoss


class GISTEmbedLoss(SentenceLoss):
    """`MultipleNegativesRankingLoss` without the negatives that a guide finds too similar.

    In a batch, a text that is more similar to a first text than its partner is, by the vectors of
    another encoder, is probably no negative: it does not count. The labels are these vectors,
    float32 `[n, K, G]`, which the guide computes once, before training. Further texts of an example
    are hard negatives for all of the batch.

    Args:
        temperature: What cosines are divided by.
        margin: How much less similar than the partner a negative must be.
        margin_strategy: Whether the margin is "absolute", or "relative" to the partner's cosine.
        contrast_anchors: Whether other first texts are negatives for a first text.
        contrast_positives: Whether other partners are negatives for a partner.
        mini_batch_size: See `CachedMultipleNegativesRankingLoss`, or None.
        no_duplicates: See `MultipleNegativesRankingLoss`.

    Raises:
        UserError: If `temperature` is not positive, `margin_strategy` is unknown, or
            `mini_batch_size` is less than 1.

    Example:
        >>> guide = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> pairs = ["capital of France?", "2 + 2?"], ["Paris", "4"]
        >>> guide_vectors = np.stack([guide.encode(texts) for texts in pairs], axis=1)
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.GISTEmbedLoss()
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit(pairs, guide_vectors)

    Reference: Solatorio 2024 (arXiv 2402.16829); sentence-transformers, the loss of this name.
    """

    num_texts = (2, ...)

    def __init__(
        self,
        temperature: float = TEMPERATURE,
        margin: float = 0.0,
        margin_strategy: str = "absolute",
        contrast_anchors: bool = True,
        contrast_positives: bool = True,
        mini_batch_size: int | None = None,
        no_duplicates: bool = False,
    ):
        require(temperature > 0, "must be positive", UserError, temperature=temperature)
        require_one_of("margin_strategy", margin_strategy, ("absolute", "relative"))
        self.temperature = temperature
        self.margin = margin
        self.margin_strategy = margin_strategy
        self.contrast_anchors = contrast_anchors
        self.contrast_positives = contrast_positives
        self.mini_batch_size = mini_batch_size and checked_size(mini_batch_size)
        self.no_duplicates = no_duplicates

    def outputs(self, vectors):
        return tf.math.l2_normalize(vectors, axis=-1)

    def check_labels(self, labels):
        """Does nothing: `losses` knows the number of texts."""

    def losses(self, labels, outputs):
        logits = self._logits(labels, outputs)
        return tf.reduce_logsumexp(logits, axis=-1) - tf.linalg.diag_part(logits)

    def hits(self, labels, outputs):
        logits = self._logits(labels, outputs)
        return tf.linalg.diag_part(logits) >= tf.reduce_max(logits, axis=-1)

    def _logits(self, labels, outputs):
        """Returns the logits `[B, C]`; the first B columns are those of the partners."""
        if labels.shape.rank != 3 or labels.shape[1] != outputs.shape[1]:
            expected = f"be the guide's vectors of all texts, [n, {outputs.shape[1]}, G]"
            raise user_error("Labels", expected, f"labels of shape {list(labels.shape)}")
        guides = tf.math.l2_normalize(tf.cast(labels, tf.float32), axis=-1)
        cosines, guided = self._cosines(outputs), self._cosines(guides)
        partner = tf.linalg.diag_part(guided)[:, tf.newaxis]  # [B, 1]
        scale = tf.abs(partner) if self.margin_strategy == "relative" else 1.0
        counts = guided <= partner - self.margin * scale
        counts = tf.linalg.set_diag(counts, tf.ones_like(counts[:, 0]))
        return tf.where(counts, cosines / self.temperature, -np.inf)

    def _cosines(self, vectors):
        """Returns cosines of unit vectors `[B, K, D]`: `[B, C]`; infinite of a text with itself."""
        anchors, positives, *negatives = tf.unstack(vectors, axis=1)
        pairs = [(anchors, positives)]
        pairs += [(anchors, anchors)] * self.contrast_anchors
        pairs += [(positives, positives)] * self.contrast_positives
        pairs += [(anchors, negative) for negative in negatives]
        blocks = [tf.matmul(a, b, transpose_b=True) for a, b in pairs]
        # A partner with the same vector can be as similar as the text itself, because of rounding.
        own = tf.fill(tf.shape(anchors)[:1], np.float32(np.inf))
        blocks = [
            tf.linalg.set_diag(block, own) if a is b else block
            for block, (a, b) in zip(blocks, pairs)
        ]
        return tf.concat(blocks, axis=1)
