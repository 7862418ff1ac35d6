"""Prints scores and examples after each epoch. It imports Keras, so tools import it late."""

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


class EpochExamples(keras.callbacks.Callback):
    """Prints what the model writes for a few sources after each epoch.

    Args:
        write: A function of the model and the sources that returns texts.
        sources, targets: The sources and their references.
    """

    def __init__(self, write, sources, targets):
        super().__init__()
        self._write = write
        self._sources = sources
        self._targets = targets

    def on_epoch_end(self, epoch, logs=None):
        texts = self._write(self.model, self._sources)
        for source, target, text in zip(self._sources, self._targets, texts, strict=True):
            print(f"  source     {source}\n  reference  {target}\n  output     {text}", flush=True)
