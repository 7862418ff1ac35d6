"""Scores of held-out data after each epoch."""

import keras

from bert_tf.training.evaluation.scores import all_scores


class EpochScores(keras.callbacks.Callback):
    """Adds every score of `bert_tf.training.all_scores` to the logs, as `val_<name>`.

    Unlike Keras metrics, the scores are exact and defined for all problem types. Put this callback
    before callbacks that monitor a score, such as
    `keras.callbacks.EarlyStopping(monitor="val_matthews")`. Under a `DistillationModel`, the scores
    are those of the student.

    Args:
        x: Held-out inputs, as the model's `predict` takes them.
        y: Their labels, as the model's `targets` returns them.
        batch_size: The batch size of `predict`.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> scores = bert_tf.training.EpochScores(texts, model.targets(labels))
        >>> history = model.fit(texts, labels, callbacks=[scores])
        >>> "val_accuracy" in history.history
        True
    """

    def __init__(self, x, y, batch_size: int = 32):
        super().__init__()
        self.x = x
        self.y = y
        self.batch_size = batch_size

    def on_epoch_end(self, epoch, logs=None):
        model = getattr(self.model, "student", self.model)
        logits = model.predict(self.x, batch_size=self.batch_size, verbose=0)
        results = all_scores(self.y, model.probabilities(logits), model.problem_type)
        if logs is not None:
            logs.update({f"val_{name}": value for name, value in results.items()})
