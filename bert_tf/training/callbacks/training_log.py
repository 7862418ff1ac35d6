"""Logs the means and rates of training at regular intervals."""

import dataclasses
import time

import tensorflow as tf

from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.distribution.strategies import is_chief


@dataclasses.dataclass(eq=False)
class TrainingLog(StepCallback):
    """Passes means and rates to its writers every `log_steps` steps.

    The values are the means of the model's logs (losses, accuracies, `gradient_norm`,
    `padding_share`) over the interval; `learning_rate` of the next step; `steps_per_second`,
    `examples_per_second` and, if the model logs `padding_share`, `tokens_per_second` without
    padding. The rates do not include tracing and evaluation. The model's metrics are reset after
    each interval. The logs of an evaluation, `val_...`, are written too.

    Args:
        log_steps: The number of steps of an interval.
        writers: Objects with `write(step, values)`, such as `JsonLines` and `TensorBoardScalars`.
        batch_size: The number of examples of a step, on all workers.
        sequence_length: `T`, which `tokens_per_second` needs.
        initial_step: The step from which the run is resumed.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> writers = [bert_tf.training.callbacks.JsonLines("log.jsonl")]
        >>> log = bert_tf.training.callbacks.TrainingLog(1, writers, batch_size=4)
        >>> model.fit(texts, labels, callbacks=[log])
        >>> "loss" in bert_tf.training.callbacks.read_json_lines("log.jsonl")[0]
        True
    """

    log_steps: int
    writers: list
    batch_size: int
    sequence_length: int | None = None
    initial_step: int = 0

    def __post_init__(self):
        super().__post_init__()
        self._logs = {}
        self._start = None  # (time, step) of the start of the interval
        self._steps = 0  # of the interval

    def on_step_end(self, logs):
        self._logs = logs
        self._steps += 1
        if self.step % self.log_steps == 0:
            self._write()
        elif self._start is None:
            self._start = (time.monotonic(), self.step)  # after the first step, which is traced

    def on_test_begin(self, logs=None):
        self._test_began = time.monotonic()

    def on_test_end(self, logs=None):
        if self._start:
            self._start = (self._start[0] + time.monotonic() - self._test_began, self._start[1])

    def on_epoch_end(self, epoch, logs=None):
        values = {k: float(v) for k, v in (logs or {}).items() if k.startswith("val_")}
        if values:
            self._write_values(values)

    def on_train_end(self, logs=None):
        if self._steps:
            self._write()
        self._start = None

    def _write(self):
        values = {name: float(value) for name, value in self._logs.items()}
        values["learning_rate"] = float(tf.convert_to_tensor(self.model.optimizer.learning_rate))
        now = time.monotonic()
        if self._start and self.step > self._start[1]:
            rate = (self.step - self._start[1]) / (now - self._start[0])
            values["steps_per_second"] = rate
            values["examples_per_second"] = rate * self.batch_size
            if self.sequence_length and "padding_share" in values:
                tokens = self.batch_size * self.sequence_length * (1.0 - values["padding_share"])
                values["tokens_per_second"] = rate * tokens
        self._write_values(values)
        self.model.reset_metrics()
        self._start = (now, self.step)
        self._steps = 0

    def _write_values(self, values):
        if not is_chief(self.model.distribute_strategy):
            return
        for writer in self.writers:
            writer.write(self.step, values)
