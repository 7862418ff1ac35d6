"""Metrics of batches: F1 and AUC of two classes, the perplexity of a language model."""

import keras
import tensorflow as tf

from bert_tf.training.evaluation.probabilities import POSITIVE_CLASS


@keras.saving.register_keras_serializable(package="bert_tf")
class BinaryF1(keras.metrics.Metric):
    """F1 of class 1, which is predicted if its logit is larger.

    F1 is zero if there are neither true nor predicted positives, as in scikit-learn.

    Example:
        >>> metric = bert_tf.training.BinaryF1()
        >>> metric.update_state([0, 1, 1], [[2.0, 0.0], [0.0, 1.0], [3.0, 0.0]])
        >>> round(float(metric.result()), 2)
        0.67
    """

    def __init__(self, name: str = "f1", **kwargs):
        super().__init__(name=name, **kwargs)
        self.true_positives = self.add_weight(name="true_positives", initializer="zeros")
        self.predicted = self.add_weight(name="predicted", initializer="zeros")
        self.actual = self.add_weight(name="actual", initializer="zeros")

    def update_state(self, y_true, y_pred, sample_weight=None):
        actual = tf.equal(tf.cast(tf.reshape(y_true, [-1]), tf.int32), POSITIVE_CLASS)
        found = tf.argmax(y_pred, axis=-1, output_type=tf.int32)
        predicted = tf.equal(found, POSITIVE_CLASS)
        weight = 1.0
        if sample_weight is not None:
            weight = tf.cast(tf.reshape(sample_weight, [-1]), tf.float32)

        def total(mask):
            return tf.reduce_sum(tf.cast(mask, tf.float32) * weight)

        self.true_positives.assign_add(total(actual & predicted))
        self.predicted.assign_add(total(predicted))
        self.actual.assign_add(total(actual))

    def result(self):
        return tf.math.divide_no_nan(2.0 * self.true_positives, self.predicted + self.actual)


@keras.saving.register_keras_serializable(package="bert_tf")
class BinaryAUC(keras.metrics.AUC):
    """Area under the ROC curve of class 1.

    It is estimated from 200 thresholds, as in Keras, with an error of about 0.001.

    Example:
        >>> metric = bert_tf.training.BinaryAUC()
        >>> metric.update_state([0, 1, 1], [[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
        >>> round(float(metric.result()), 2)
        1.0
    """

    def __init__(self, name: str = "auc", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        positive = tf.nn.softmax(tf.cast(y_pred, tf.float32))[:, POSITIVE_CLASS]  # [B]
        super().update_state(tf.reshape(y_true, [-1]), positive, sample_weight)


@keras.saving.register_keras_serializable(package="bert_tf")
class Perplexity(keras.metrics.Mean):
    """e to the mean loss of a word.

    Example:
        >>> from bert_tf.training.evaluation.metrics import Perplexity
        >>> metric = Perplexity()
        >>> metric.update_state([0.0, 2.0])
        >>> round(float(metric.result()), 3)
        2.718
    """

    def result(self):
        return tf.exp(tf.convert_to_tensor(super().result()))
