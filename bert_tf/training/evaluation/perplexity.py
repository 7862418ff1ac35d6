"""The perplexity of a language model."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="bert_tf")
class Perplexity(keras.metrics.Mean):
    """e to the mean loss of a word.

    Example:
        >>> from bert_tf.training.evaluation.perplexity import Perplexity
        >>> metric = Perplexity()
        >>> metric.update_state([0.0, 2.0])
        >>> round(float(metric.result()), 3)
        2.718
    """

    def result(self):
        return tf.exp(tf.convert_to_tensor(super().result()))
