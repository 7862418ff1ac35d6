"""What the losses for `compile(objective=...)` have in common, on vectors of K texts per example.

`outputs` computes from the vectors `[B, K, D]` what the loss compares, and `losses` returns one
loss per example.

Glossary: `B` examples, `K` texts of an example, `D` size of a vector.
"""

import abc
import importlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, user_error

# The names of losses for `compile`, with the public names of their classes.
SENTENCE_LOSSES = {
    "angle": "AnglELoss",
    "batch_all_triplet": "BatchAllTripletLoss",
    "batch_hard_triplet": "BatchHardTripletLoss",
    "batch_semi_hard_triplet": "BatchSemiHardTripletLoss",
    "classification": "ClassificationLoss",
    "contrastive": "ContrastiveLoss",
    "cosent": "CoSENTLoss",
    "cosine": "CosineRegressionLoss",
    "margin_mse": "MarginMSELoss",
    "online_contrastive": "OnlineContrastiveLoss",
    "ranking": "MultipleNegativesRankingLoss",
    "triplet": "TripletLoss",
}


class SentenceLoss(abc.ABC):
    """The base of the losses.

    Attributes:
        num_texts: The supported values of K; `(2, ...)` means two or more.
        needs_labels: Whether an example has a label.
        has_hits: Whether the prediction for an example is correct or not.
        num_classes: The number of classes, if labels are their ids and classes may have weights.
        mini_batch_size: The maximum number of examples that are encoded at once for the gradient
            of a batch; None for all.
        no_duplicates: Whether no text may be in two examples of a batch that `fit` makes of texts.
        texts_per_label: How often a label is at least in a batch of texts that has it, or None.
        step: The number of steps that the optimizer has taken, a variable that `compile` sets.

    Example:
        >>> class DotLoss(bert_tf.training.SentenceLoss):  # -log sigmoid(u · v)
        ...     needs_labels = has_hits = False
        ...
        ...     def outputs(self, vectors):
        ...         return tf.reduce_sum(vectors[:, 0] * vectors[:, 1], axis=-1)
        ...
        ...     def losses(self, labels, outputs):
        ...         return tf.math.softplus(-outputs)
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=DotLoss())
        >>> encoder.fit((["2 + 2?", "It rains."], ["4", "It is wet."]))
    """

    num_texts: tuple[Any, ...] = (2,)
    needs_labels = True
    has_hits = True
    num_classes: int | None = None
    mini_batch_size: int | None = None
    no_duplicates = False
    texts_per_label: int | None = None
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

    def check_labels(self, labels: np.ndarray) -> None:
        """Checks labels `[n, ...]` in memory.

        Raises:
            UserError: If a loss that takes one number for each example gets others.
        """
        if labels.size != len(labels):
            received = f"an array of shape {labels.shape}"
            raise user_error("`y`", "be one number for each example", received)

    def take_examples_of(self, loss: "SentenceLoss") -> None:
        """Makes examples and batches those of another loss, of which this one is made."""
        self.num_texts, self.needs_labels = loss.num_texts, loss.needs_labels
        self.has_hits, self.mini_batch_size = loss.has_hits, loss.mini_batch_size
        self.no_duplicates, self.check_labels = loss.no_duplicates, loss.check_labels
        self.texts_per_label = loss.texts_per_label

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


def sentence_loss(objective: str | SentenceLoss) -> SentenceLoss:
    """Returns a loss by its name, or the loss itself. Raises `UserError` if the name is unknown."""
    if isinstance(objective, SentenceLoss):
        return objective
    rule = f"must be one of {sorted(SENTENCE_LOSSES)} or a SentenceLoss"
    require(objective in SENTENCE_LOSSES, rule, UserError, objective=objective)
    losses = importlib.import_module("bert_tf.training.losses")
    return getattr(losses, SENTENCE_LOSSES[objective])()


def checked_size(mini_batch_size: int) -> int:
    """Returns a `mini_batch_size`. Raises `UserError` if it is not a positive integer."""
    if not is_integer(mini_batch_size) or mini_batch_size < 1:
        received = f"mini_batch_size={mini_batch_size!r}"
        raise user_error("`mini_batch_size`", "be an integer of at least 1", received)
    return mini_batch_size
