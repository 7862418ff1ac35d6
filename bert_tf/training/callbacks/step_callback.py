"""Callbacks that count the steps of a whole run, not of one `fit`."""

import keras


class StepCallback(keras.callbacks.Callback):
    """Base of the callbacks that act at steps; `step` counts the batches trained on so far.

    The count goes on over epochs, over several calls of `fit` and, with `initial_step`, over the
    restarts of a run. It is not the optimizer's `iterations`: under float16 loss scaling that one
    leaves out the steps whose gradients overflowed.

    Args:
        initial_step: The step that the run goes on from.
    """

    def __init__(self, initial_step: int = 0):
        super().__init__()
        self.step = initial_step
        self._first_batch = 0

    def on_train_batch_begin(self, batch, logs=None):
        self._first_batch = batch

    def on_train_batch_end(self, batch, logs=None):
        # One call for `steps_per_execution` batches; `batch` is the last of them.
        self.step += batch - self._first_batch + 1
        self.on_step_end(logs or {})

    def on_step_end(self, logs: dict) -> None:
        """Called after each step, when `step` counts it. `logs` are the model's."""
