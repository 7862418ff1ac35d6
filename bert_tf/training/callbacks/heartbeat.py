"""Shows the launcher of several workers that this one is not hanging."""

import keras

from bert_tf.base.supervision import beat


class Heartbeat(keras.callbacks.Callback):
    """Beats after each batch of training, evaluation and prediction.

    tools/launch_workers.py starts all workers again if one has not beaten for --hang_timeout
    seconds. Without it, the callback does nothing.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> model.fit(texts, labels, callbacks=[bert_tf.training.callbacks.Heartbeat()])
    """

    def on_train_batch_end(self, batch, logs=None):
        beat()

    def on_test_batch_end(self, batch, logs=None):
        beat()

    def on_predict_batch_end(self, batch, logs=None):
        beat()
