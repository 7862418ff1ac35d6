"""Counts the steps of a whole run, which may have several calls of `fit`."""

import keras


class StepCallback(keras.callbacks.Callback):
    """The base of the callbacks that act at steps. `step` is the number of batches trained on.

    It continues over epochs, over calls of `fit` and, with `initial_step`, over restarts of a run.
    It is not the optimizer's `iterations`, which do not count the steps that float16 loss scaling
    skips. Subclasses are dataclasses.

    Args:
        initial_step: The step from which the run is resumed, in subclasses that take it.
    """

    initial_step = 0

    def __post_init__(self):
        super().__init__()
        self.step = self.initial_step
        self._first_batch = 0

    def on_train_batch_begin(self, batch, logs=None):
        self._first_batch = batch

    def on_train_batch_end(self, batch, logs=None):
        # Called once per `steps_per_execution` batches; `batch` is the last of them.
        self.step += batch - self._first_batch + 1
        self.on_step_end(logs or {})

    def on_step_end(self, logs: dict) -> None:
        """Is called after each step with the model's logs; `step` includes that step."""
