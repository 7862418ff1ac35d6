"""A frozen backbone computes once: its features are kept and the head alone is trained."""

from typing import Any

import numpy as np

from bert_tf.models.task_model import TaskModel
from bert_tf.models.training_model import TrainingModel
from bert_tf.tasks.text_classification.model import BertTextClassifier


def cached_features(
    model: BertTextClassifier, texts: Any, token_budget: int | None = None, verbose: int = 0
) -> np.ndarray:
    """What the classifier sees of each text, computed once for any number of epochs.

    Args:
        model: The classifier; its backbone is used as it is, without dropout.
        texts: What `predict` takes.
        token_budget: Tokens of a batch, padding counted; None takes `TaskModel.predict`'s.
        verbose: 1 shows a progress bar.

    Returns:
        float32 `[n, H]`, for pooling "mean_max" `[n, 2H]`.
    """
    return _Pooled(model).predict(texts, token_budget=token_budget, verbose=verbose)


class ClassifierHead(TrainingModel):
    """The head of a classifier as a model of its own, on cached features.

    It shares the classifier's variables: what it learns, the classifier knows. Training it equals
    training the classifier with `model.backbone.trainable = False` and no dropout in the backbone.

    Args:
        classifier: The `BertTextClassifier`.

    Call arguments:
        inputs: `[B, H]`, rows of `cached_features`.

    Returns:
        Logits float32 `[B, num_classes]`.

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
        self._logits_of = classifier.logits_of
        self._default_loss = classifier.default_loss
        self._class_weights = classifier.class_weights
        self.built = True

    def compile(self, optimizer="adam", loss="auto", metrics=None, **kwargs):
        """`keras.Model.compile`; the loss defaults to the classifier's."""
        loss = self._default_loss() if loss == "auto" else loss
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)

    def class_weights(self, class_weight):
        return self._class_weights(class_weight)

    def call(self, inputs, training=False):
        return self._logits_of(inputs, training=training)

    def fit(self, *args, **kwargs):
        """As in Keras."""
        history = super().fit(*args, **kwargs)
        model = self._logits_of.__self__
        model.untrained_heads = tuple(set(model.untrained_heads) - {"classifier"})
        return history


class _Pooled(TaskModel):
    """A classifier that stops before its head."""

    def __init__(self, classifier):
        super().__init__(
            classifier.backbone, classifier.tokenizer, classifier.max_length, name="pooled"
        )
        self._pooled = classifier.pooled
        self.built = True

    def call(self, inputs, training=False):
        return self._pooled(inputs, training=training)
