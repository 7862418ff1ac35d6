"""Trains only the head of a classifier, on features that a frozen backbone computes once."""

from typing import Any

import numpy as np

from bert_tf.errors import UserError, require
from bert_tf.models.task_model import TaskModel
from bert_tf.tasks.text_classification.model import BertTextClassifier
from bert_tf.training.training_model import TrainingModel


def cached_features(
    model: BertTextClassifier, texts: Any, token_budget: int | None = None, verbose: int = 0
) -> np.ndarray:
    """Computes the inputs of a classifier's head, float32 `[n, H]` ("mean_max": `[n, 2H]`).

    The backbone is used without dropout. For the other arguments see `predict`.

    Raises:
        UserError: If there is no tokenizer, or the model has a `ScalarMix` or an LSTM, which is
            trained too.
        DataError: If a text is missing or malformed.
    """
    rule = "of the model must be False: its weights are trained with the head"
    fix = "Freeze the encoder with bert_tf.training.freeze_layers and call `fit`."
    require(not model.use_scalar_mix, rule, UserError, fix, use_scalar_mix=True)
    rule = "of the model must be None: its weights are trained with the head"
    require(model.lstm is None, rule, UserError, fix, lstm_units=model.lstm_units)
    return _Pooled(model).predict(texts, token_budget=token_budget, verbose=verbose)


class ClassifierHead(TrainingModel):
    """The head of a classifier as a model on cached features, with the classifier's variables.

    Training it equals training the classifier with `model.backbone.trainable = False` and without
    dropout in the backbone. It takes rows of `cached_features` and returns logits, float32
    `[B, num_classes]`.

    Args:
        classifier: The `BertTextClassifier`.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("bert-base/", labels=["bad", "good"])
        >>> features = cached_features(model, texts)
        >>> head = ClassifierHead(model)
        >>> head.compile(bert_tf.training.AdamWeightDecay(1e-2), metrics=["accuracy"])
        >>> head.fit(features, model.targets(labels), epochs=2)
        >>> model.predict(["a waste of time"]).shape
        (1, 2)
    """

    def __init__(self, classifier: BertTextClassifier, **kwargs):
        super().__init__(**kwargs)
        self.dropout_layer = classifier.dropout_layer
        self.classifier = classifier.classifier
        # A function holds it: Keras would track a model among the attributes as a layer.
        self._whole_model = lambda: classifier
        self._heads = _Heads(classifier)
        self.built = True

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """Compiles as the classifier does."""
        loss, metrics = self._whole_model().loss_and_metrics(loss, metrics)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def class_weights(self, class_weight):
        return self._whole_model().class_weights(class_weight)

    def call(self, inputs, training=False):
        return self._whole_model().logits_of(inputs, training=training)


class _Heads:
    """The untrained heads of a classifier; a `fit` of a `ClassifierHead` trains one of them."""

    def __init__(self, classifier):
        self._of = lambda: classifier

    @property
    def untrained(self):
        return self._of().untrained_heads

    @untrained.setter
    def untrained(self, heads):
        self._of().untrained_heads = tuple(set(self.untrained) - {"classifier"})


class _Pooled(TaskModel):
    """A classifier without its head."""

    def __init__(self, classifier):
        own = classifier.backbone, classifier.tokenizer, classifier.max_length
        super().__init__(*own, name="pooled")
        self._pooled = classifier.pooled
        self.built = True

    def call(self, inputs, training=False):
        return self._pooled(inputs, training=training)
