"""The losses on pairs with scores, and on margins between the scores of documents.

Glossary: `B` examples, `K` texts of an example, `n` texts that are compared with the second one.
"""

import tensorflow as tf

from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.training.losses.sentence_loss import SentenceLoss
from bert_tf.training.losses.vector_distances import SIMILARITIES, own_similarities

COSENT_SCALE = 20.0  # sentence-transformers, CoSENTLoss


class CosineRegressionLoss(SentenceLoss):
    """(cos(u, v) - label)², for pairs with a similarity in [-1, 1] (divide those of STS by 5).

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.CosineRegressionLoss()
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["It rains."], ["It is wet."]), [0.8])

    Reference: Reimers and Gurevych 2019, section 3.
    """

    has_hits = False

    def outputs(self, vectors):
        return own_similarities(vectors, "cosine")[:, 0]

    def losses(self, labels, outputs):
        return tf.square(outputs - tf.cast(tf.reshape(labels, [-1]), tf.float32))


class CoSENTLoss(SentenceLoss):
    """log(1 + Σ exp(scale · (s_i - s_j))) over all i, j with label_i < label_j, for scored pairs.

    s are the cosines of the pairs of a batch. Only the order of the labels counts, which may have
    any range. The loss of an example is that of its batch, which is what one replica computes at
    once, with `gradient_accumulation_steps` a part of its rows.

    Args:
        scale: The factor of the cosines.

    Raises:
        UserError: If `scale` is not positive.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.CoSENTLoss()
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["It rains.", "It rains."], ["It is wet.", "It is dry."]), [4.5, 0.5])

    Reference: Huang et al. 2024 (CoSENT, IEEE TASLP); sentence-transformers, `CoSENTLoss`.
    """

    has_hits = False

    def __init__(self, scale: float = COSENT_SCALE):
        require(scale > 0, "must be positive", UserError, scale=scale)
        self.scale = scale

    def outputs(self, vectors):
        return self.scale * own_similarities(vectors, "cosine")[:, 0]

    def losses(self, labels, outputs):
        labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
        differences = outputs[:, tf.newaxis] - outputs  # [B, B]
        is_wrong = labels[:, tf.newaxis] < labels
        differences = tf.where(is_wrong, differences, outputs.dtype.min)
        terms = tf.concat([[0.0], tf.reshape(differences, [-1])], axis=0)  # e^0 = 1
        return tf.fill(tf.shape(outputs), tf.reduce_logsumexp(terms))


class AnglELoss(CoSENTLoss):
    """`CoSENTLoss` with the angle of vectors as complex numbers instead of their cosine.

    The second half of a vector's dimensions are the imaginary parts of the first half. s is
    |cos(u, v) + Σ (v_real · u_imag - v_imag · u_real)| of vectors of length 1. Its gradient does
    not vanish where the cosine is near 1 or -1.

    Args:
        scale: The factor of s.

    Raises:
        UserError: See `CoSENTLoss`.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> encoder.compile(
        ...     bert_tf.training.AdamWeightDecay(2e-5), objective=bert_tf.training.AnglELoss()
        ... )
        >>> encoder.fit((["It rains.", "It rains."], ["It is wet.", "It is dry."]), [4.5, 0.5])

    Reference: Li and Li 2024 (arXiv 2309.12871); sentence-transformers, `AnglELoss`, whose
    similarity is this.
    """

    def outputs(self, vectors):
        vectors = tf.math.l2_normalize(vectors, axis=-1)
        cosines = tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)
        odd = tf.shape(vectors)[-1] % 2
        vectors = tf.pad(vectors, [[0, 0], [0, 0], [0, odd]])
        real, imaginary = tf.split(vectors, 2, axis=-1)  # [B, 2, D / 2]
        sines = tf.reduce_sum(imaginary[:, 0] * real[:, 1] - real[:, 0] * imaginary[:, 1], axis=-1)
        return self.scale * tf.abs(cosines + sines)


class MarginMSELoss(SentenceLoss):
    """The mean of ((u · v - u · w_i) - margin_i)² over n texts w_i, with a teacher's margins.

    An example is a query, a document that fits and n others. The labels are the margins, the score
    that a cross-encoder gives to the first document minus that of each other, `[B, n]`, or `[B]`
    for one other; or its scores of all documents, `[B, n + 1]`.

    Args:
        similarity: "dot" or "cosine".

    Raises:
        UserError: If `similarity` is unknown.

    Example:
        >>> teacher = bert_tf.BertCrossEncoder.from_pretrained("bert-base/", activation="identity")
        >>> queries, fit, others = ["capital of France?"], ["Paris"], ["Rome"]
        >>> documents = [teacher.score(queries, texts) for texts in (fit, others)]
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.MarginMSELoss()
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((queries, fit, others), np.stack(documents, axis=1))

    Reference: Hofstätter et al. 2020 (arXiv 2010.02666); sentence-transformers, `MarginMSELoss`.
    """

    num_texts = (3, ...)
    has_hits = False

    def __init__(self, similarity: str = "dot"):
        require_one_of("similarity", similarity, SIMILARITIES)
        self.similarity = similarity

    def outputs(self, vectors):
        scores = own_similarities(vectors, self.similarity)  # [B, n + 1]
        return scores[:, :1] - scores[:, 1:]  # [B, n]

    def check_labels(self, labels):
        """Does nothing: `losses` knows n."""

    def losses(self, labels, outputs):
        count, shape = outputs.shape[1], labels.shape
        labels = tf.cast(labels, tf.float32)
        labels = labels[:, tf.newaxis] if labels.shape.rank == 1 else labels
        if labels.shape[1] == count + 1:
            labels = labels[:, :1] - labels[:, 1:]
        if labels.shape.rank != 2 or labels.shape[1] != count:
            expected = f"be margins [n, {count}], or scores [n, {count + 1}]"
            raise user_error("Labels", expected, f"labels of shape {list(shape)}")
        return tf.reduce_mean(tf.square(outputs - labels), axis=1)
