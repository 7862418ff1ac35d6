"""Losses for `BertSentenceEncoder.compile(objective=...)`, on the vectors of K texts per example.

`outputs` computes from the vectors `[B, K, D]` what the loss compares, and `losses` returns one
loss per example.

Glossary: `B` examples, `K` texts of an example, `D` size of a vector, `C` classes.
"""

import abc
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import stateless_dropout
from bert_tf.training.losses.sparse_crossentropy import SparseCrossentropy, require_mean

RANKING_SCALE = 20.0  # sentence-transformers, MultipleNegativesRankingLoss
SIMILARITIES = ("cosine", "dot")
TRIPLET_MARGIN = 1.0  # Reimers and Gurevych 2019, section 3


class SentenceLoss(abc.ABC):
    """The base of the losses.

    Attributes:
        num_texts: The supported values of K; `(2, ...)` means two or more.
        needs_labels: Whether an example has a label.
        has_hits: Whether the prediction for an example is correct or not.
        mini_batch_size: The maximum number of examples that are encoded at once for the gradient
            of a batch; None for all.
        no_duplicates: Whether no text may be in two examples of a batch that `fit` makes of texts.
        step: The number of steps that the optimizer has taken, a variable that `compile` sets.
    """

    num_texts: tuple[Any, ...] = (2,)
    needs_labels = True
    has_hits = True
    mini_batch_size: int | None = None
    no_duplicates = False
    step: keras.Variable | None = None

    def build(self, vector_size: int, initializer_range: float) -> None:  # noqa: B027
        """Creates the variables of the loss, if it has any."""

    def set_step(self, step: keras.Variable) -> None:
        """Sets `step` of this loss and of the one of which it is made."""
        self.step = step
        inner = getattr(self, "loss", None)
        if isinstance(inner, SentenceLoss):
            inner.set_step(step)

    @property
    def variables(self) -> list:
        """The variables that are trained with the encoder, but are not saved with it."""
        return []

    def description(self) -> str:
        """Returns the class and the settings of the loss for `state.json` of checkpoints."""
        settings = [
            f"{name}={value!r}"
            for name, value in vars(self).items()
            if isinstance(value, (str, int, float))
        ]
        return f"{type(self).__name__}({', '.join(settings)})"

    def check(self, num_texts: int, has_labels: bool) -> None:
        """Raises `UserError` if the loss does not support such examples."""
        is_more = ... in self.num_texts and num_texts > self.num_texts[0]
        fits = num_texts in self.num_texts or is_more
        if not fits or has_labels != self.needs_labels:
            counts = " or ".join("more" if n is ... else str(n) for n in self.num_texts)
            expected = f"have {counts} texts and {'a' if self.needs_labels else 'no'} label"
            received = f"{num_texts} texts and {'a' if has_labels else 'no'} label"
            raise user_error(f"An example for {type(self).__name__}", expected, received)

    def take_examples_of(self, loss: "SentenceLoss") -> None:
        """Makes examples and batches those of another loss, of which this one is made."""
        self.num_texts, self.needs_labels = loss.num_texts, loss.needs_labels
        self.has_hits, self.mini_batch_size = loss.has_hits, loss.mini_batch_size
        self.no_duplicates = loss.no_duplicates

    @abc.abstractmethod
    def outputs(self, vectors: tf.Tensor) -> tf.Tensor:
        """Computes what the loss compares from vectors `[B, K, D]`."""

    def training_outputs(self, vectors: tf.Tensor) -> tf.Tensor:
        """Computes what `outputs` does, in training: with dropout, or a sample of the negatives.

        What is random is a function of `step`, so a resumed run draws the same.
        """
        return self.outputs(vectors)

    def random_seed(self) -> tf.Tensor:
        """Returns a seed for this step, a scalar int64."""
        return tf.zeros([], tf.int64) if self.step is None else tf.cast(self.step, tf.int64)

    @abc.abstractmethod
    def losses(self, labels: tf.Tensor | None, outputs: tf.Tensor) -> tf.Tensor:
        """Returns one loss per example, float32 `[B]`."""

    def hits(self, labels: tf.Tensor | None, outputs: tf.Tensor) -> tf.Tensor | None:
        """Returns whether each prediction is correct, bool `[B]`, or None without `has_hits`."""
        return None


class ClassificationLoss(SentenceLoss):
    """Cross-entropy of softmax(W [u; v; |u - v|] + b), for pairs with class ids such as NLI.

    With `hidden_size` the softmax is on a dense layer with ReLU, and dropout comes before it.

    Args:
        num_classes: The number of classes; 3 for entailment, neutral and contradiction.
        loss: Cross-entropy with label smoothing, focal loss or class weights. None means plain
            cross-entropy.
        hidden_size: The size of a dense layer with ReLU, such as 512. None means no such layer.
        dropout: The dropout rate before the softmax layer, in training.

    Raises:
        UserError: If `num_classes` is less than 2, `hidden_size` less than 1, `dropout` not in
            [0, 1), or the reduction of `loss` not a mean.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.ClassificationLoss(num_classes=3)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["It rains.", "It rains."], ["It is wet.", "It is dry."]), [0, 2])

    Reference: Reimers and Gurevych 2019 (arXiv 1908.10084), section 3.
    """

    def __init__(
        self,
        num_classes: int = 3,
        loss: SparseCrossentropy | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ):
        require(num_classes >= 2, "must be at least 2", UserError, num_classes=num_classes)
        is_size = hidden_size is None or (is_integer(hidden_size) and hidden_size > 0)
        require(is_size, "must be a positive integer or None", UserError, hidden_size=hidden_size)
        require(0 <= dropout < 1, "must be in [0, 1)", UserError, dropout=dropout)
        self.num_classes = num_classes
        self.loss = loss or SparseCrossentropy()
        require_mean(self.loss)
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.hidden = self.classifier = None

    def build(self, vector_size, initializer_range):
        def dense(units, width, name):
            layer = Dense(units, initializer_range, dtype="float32", name=name)
            layer.build([None, width])
            return layer

        self._vector_size, width = vector_size, 3 * vector_size
        if self.hidden_size is not None:
            self.hidden = dense(self.hidden_size, width, "pair_hidden")
            width = self.hidden_size
        self.classifier = dense(self.num_classes, width, "pair_classifier")

    @property
    def variables(self):
        layers = [layer for layer in (self.hidden, self.classifier) if layer is not None]
        return [variable for layer in layers for variable in layer.trainable_variables]

    def outputs(self, vectors):
        return self._logits(vectors, 0.0)

    def training_outputs(self, vectors):
        return self._logits(vectors, self.dropout)

    def _logits(self, vectors, dropout):
        if vectors.shape[-1] != self._vector_size:
            expected = f"have size {self._vector_size}, for which the objective was compiled"
            received = f"size {vectors.shape[-1]}. Whitening changed it: call `compile` again."
            raise user_error("Vectors", expected, received)
        u, v = tf.unstack(vectors, num=2, axis=1)
        features = tf.concat([u, v, tf.abs(u - v)], axis=-1)  # [B, 3D]
        if self.hidden is not None:
            features = tf.nn.relu(self.hidden(features))  # [B, hidden_size]
        if dropout:
            features = stateless_dropout(features, dropout, self.random_seed())
        return self.classifier(features)  # [B, C]

    def losses(self, labels, outputs):
        return self.loss.call(_ids(labels), outputs)

    def hits(self, labels, outputs):
        return tf.equal(tf.argmax(outputs, axis=-1, output_type=tf.int32), _ids(labels))


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
        u, v = tf.unstack(tf.math.l2_normalize(vectors, axis=-1), num=2, axis=1)
        return tf.reduce_sum(u * v, axis=-1)  # [B]

    def losses(self, labels, outputs):
        return tf.square(outputs - tf.cast(tf.reshape(labels, [-1]), tf.float32))


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
        vectors = _comparable(vectors, self.similarity)
        if not self.in_batch_negatives:  # [B, K - 1]
            return self.scale * tf.reduce_sum(vectors[:, :1] * vectors[:, 1:], axis=-1)
        texts = tf.unstack(vectors, axis=1)
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


class MarginMSELoss(SentenceLoss):
    """((u · v - u · w) - label)², for triplets (query, positive, negative) with a teacher's margin.

    The label is the score that a cross-encoder gives to the positive, minus that of the negative.

    Args:
        similarity: "dot" or "cosine".

    Raises:
        UserError: If `similarity` is unknown.

    Example:
        >>> teacher = bert_tf.BertCrossEncoder.from_pretrained("bert-base/", activation="identity")
        >>> queries, fit, others = ["capital of France?"], ["Paris"], ["Rome"]
        >>> margins = teacher.score(queries, fit) - teacher.score(queries, others)
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.MarginMSELoss()
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Hofstätter et al. 2020 (arXiv 2010.02666).
    """

    num_texts = (3,)
    has_hits = False

    def __init__(self, similarity: str = "dot"):
        require_one_of("similarity", similarity, SIMILARITIES)
        self.similarity = similarity

    def outputs(self, vectors):
        vectors = _comparable(vectors, self.similarity)
        scores = tf.reduce_sum(vectors[:, :1] * vectors[:, 1:], axis=-1)  # [B, 2]
        return scores[:, 0] - scores[:, 1]

    def losses(self, labels, outputs):
        return tf.square(outputs - tf.cast(tf.reshape(labels, [-1]), tf.float32))


class MatryoshkaLoss(SentenceLoss):
    """A loss on the first dimensions of the vectors, summed over several numbers of them.

    So the beginning of a vector is a good shorter vector: `encode(texts, truncate_dim=128)`.

    Args:
        loss: The `SentenceLoss`, or its name; one without variables.
        dims: The numbers of dimensions, such as [384, 256, 128, 64].
        weights: A factor for each; None for 1.

    Raises:
        UserError: If `dims` are not positive integers, or `weights` not as many numbers.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.MatryoshkaLoss("ranking", dims=[32, 16, 8])
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Kusupati et al. 2022 (arXiv 2205.13147); sentence-transformers, `MatryoshkaLoss`.
    """

    def __init__(
        self,
        loss: "str | SentenceLoss",
        dims: Sequence[int],
        weights: Sequence[float] | None = None,
    ):
        self.loss = sentence_loss(loss)
        if not len(dims) or not all(is_integer(dim) and dim > 0 for dim in dims):
            raise UserError(f"`dims` must be positive integers. Received: dims={dims!r}")
        self.dims = [int(dim) for dim in dims]
        self.weights = [1.0] * len(self.dims) if weights is None else list(weights)
        if len(self.weights) != len(self.dims):
            received = f"{len(self.weights)} weights, {len(self.dims)} dims"
            raise user_error("`weights`", "be a number for each of `dims`", received)
        self.take_examples_of(self.loss)

    def build(self, vector_size, initializer_range):
        self.loss.build(vector_size, initializer_range)
        if self.loss.variables or max(self.dims) > vector_size:
            raise UserError(
                f"MatryoshkaLoss must have a loss without variables, and `dims` up to the size of "
                f"the vectors, {vector_size}. Received: {self.loss.description()}, "
                f"dims={self.dims}"
            )

    def description(self):
        return f"MatryoshkaLoss({self.loss.description()}, {self.dims}, {self.weights})"

    def outputs(self, vectors):
        return [self.loss.outputs(vectors[..., :dim]) for dim in self.dims]

    def training_outputs(self, vectors):
        return [self.loss.training_outputs(vectors[..., :dim]) for dim in self.dims]

    def losses(self, labels, outputs):
        each = zip(self.weights, outputs)
        return tf.add_n([weight * self.loss.losses(labels, values) for weight, values in each])

    def hits(self, labels, outputs):
        """Returns the hits for the largest dimension."""
        return self.loss.hits(labels, outputs[0])


class TripletLoss(SentenceLoss):
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0), for triplets without labels.

    Args:
        distance: d, "euclidean" or "cosine" (1 - cos).
        margin: How much farther than the positive the negative must be.

    Raises:
        UserError: If `distance` is unknown or `margin` is not positive.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.TripletLoss("cosine", margin=0.5)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)

    Reference: Reimers and Gurevych 2019, section 3; Schroff et al. 2015 (arXiv 1503.03832).
    """

    num_texts = (3,)
    needs_labels = False

    def __init__(self, distance: str = "euclidean", margin: float = TRIPLET_MARGIN):
        require_one_of("distance", distance, ("euclidean", "cosine"))
        require(margin > 0, "must be positive", UserError, margin=margin)
        self.distance = distance
        self.margin = margin

    def outputs(self, vectors):
        if self.distance == "cosine":
            vectors = tf.math.l2_normalize(vectors, axis=-1)
            cosines = tf.reduce_sum(vectors[:, :1] * vectors[:, 1:], axis=-1)
            return 1.0 - cosines  # [B, 2]: to the positive, to the negative
        squares = tf.reduce_sum(tf.square(vectors[:, :1] - vectors[:, 1:]), axis=-1)  # [B, 2]
        same = squares <= 0.0  # the square root has no gradient at 0
        return tf.where(same, 0.0, tf.sqrt(tf.where(same, 1.0, squares)))

    def losses(self, labels, outputs):
        return tf.nn.relu(outputs[:, 0] - outputs[:, 1] + self.margin)

    def hits(self, labels, outputs):
        return outputs[:, 0] < outputs[:, 1]


SENTENCE_LOSSES = {
    "classification": ClassificationLoss,
    "cosine": CosineRegressionLoss,
    "ranking": MultipleNegativesRankingLoss,
    "triplet": TripletLoss,
}


def sentence_loss(objective: str | SentenceLoss) -> SentenceLoss:
    """Returns a loss by its name, or the loss itself. Raises `UserError` if the name is unknown."""
    if isinstance(objective, SentenceLoss):
        return objective
    rule = f"must be one of {sorted(SENTENCE_LOSSES)} or a SentenceLoss"
    require(objective in SENTENCE_LOSSES, rule, UserError, objective=objective)
    return SENTENCE_LOSSES[objective]()


def checked_size(mini_batch_size: int) -> int:
    """Returns a `mini_batch_size`. Raises `UserError` if it is not a positive integer."""
    if not is_integer(mini_batch_size) or mini_batch_size < 1:
        received = f"mini_batch_size={mini_batch_size!r}"
        raise user_error("`mini_batch_size`", "be an integer of at least 1", received)
    return mini_batch_size


def _comparable(vectors, similarity):
    """Returns vectors whose dot products are the similarities."""
    return tf.math.l2_normalize(vectors, axis=-1) if similarity == "cosine" else vectors


def _ids(labels):
    return tf.cast(tf.reshape(labels, [-1]), tf.int32)
