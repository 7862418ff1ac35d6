"""Prints a line after each epoch. Imports Keras, so tools import it where they train."""

import time

import keras


class EpochLines(keras.callbacks.Callback):
    """Prints the scores of the dev file and the speed of training after each epoch.

    Args:
        tokens_per_step: The mean number of tokens of a batch.
    """

    def __init__(self, tokens_per_step):
        super().__init__()
        self._tokens_per_step = tokens_per_step
        self._seconds = self._began = 0.0
        self._steps = 0

    def on_epoch_begin(self, epoch, logs=None):
        self._seconds, self._steps = 0.0, 0

    def on_train_batch_begin(self, batch, logs=None):
        self._began = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        if batch:  # the first batch of a run is traced
            self._seconds += time.monotonic() - self._began
            self._steps += 1

    def on_epoch_end(self, epoch, logs=None):
        scores = {name: v for name, v in (logs or {}).items() if name.startswith("val_")}
        values = [f"{name} = {float(value):.4f}" for name, value in scores.items()]
        if self._steps:
            rate = self._steps * self._tokens_per_step / self._seconds
            values.append(f"tokens per second = {rate:,.0f}")
        print(f"epoch {epoch + 1}:", "  ".join(values), flush=True)
