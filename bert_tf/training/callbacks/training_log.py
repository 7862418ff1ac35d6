"""Logs the means and rates of a run: as a progress line, and for writers such as JSON lines."""

import dataclasses
import io
import json
import os
import sys
import time

import keras
import tensorflow as tf
from tqdm import tqdm

from bert_tf.base.files import atomic_path
from bert_tf.base.json_files import parse_json
from bert_tf.base.json_schema import integer, object_of
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import DataError, UserError
from bert_tf.training.distribution.strategies import is_chief


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


_LINE = object_of({"step": integer(most=2**63 - 1)})


class JsonLines:
    """Appends one JSON object per line: `step`, `time` (seconds since 1970) and the values.

    When a run is resumed, the lines of later steps are removed first, because these steps are
    repeated. A last line that is incomplete is removed too.

    Args:
        path: The file.
        initial_step: The step from which the run is resumed.

    Raises:
        DataError: If an existing file has a damaged line.

    Example:
        >>> log = bert_tf.training.callbacks.JsonLines("log.jsonl")
        >>> log.write(100, {"loss": 0.5})
        >>> bert_tf.training.callbacks.read_json_lines("log.jsonl")
        [{'step': 100, 'time': ..., 'loss': 0.5}]
    """

    def __init__(self, path: str | os.PathLike, initial_step: int = 0):
        self.path = os.fspath(path)
        if os.path.exists(self.path):
            lines = [line for line in read_json_lines(self.path) if line["step"] <= initial_step]
            with atomic_path(self.path) as new, open(new, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Appends a line. Raises `UserError` if the file cannot be written."""
        line = {"step": step, "time": round(time.time(), 3), **values}
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.path} must be writable. Received at step {step}: {error.strerror}. Make "
                "room and start again: the run is resumed from its newest checkpoint."
            ) from None


def read_json_lines(path: str | os.PathLike) -> list[dict]:
    """Returns the objects of the file, without a last line that is incomplete.

    Raises:
        DataError: If the file cannot be read, or another line is damaged.

    Example:
        >>> bert_tf.training.callbacks.JsonLines("log.jsonl").write(100, {"loss": 0.5})
        >>> [line["loss"] for line in bert_tf.training.callbacks.read_json_lines("log.jsonl")]
        [0.5]
    """
    try:
        with open_regular(path) as file:
            lines = [line for line in file if line.endswith(b"\n")]
    except OSError as error:
        raise DataError(f"{path} must be a log of a run. Received: {error.strerror}.") from None
    # A loss can be NaN, which Python's JSON writes and reads.
    return [
        parse_json(line, f"{path}, line {number},", _LINE, DataError, only_finite=False)
        for number, line in enumerate(lines, start=1)
    ]


@dataclasses.dataclass(eq=False)
class ProgressLine(StepCallback):
    """Shows steps, rate, ETA and losses: on a terminal as a progress bar, otherwise line by line.

    Args:
        num_train_steps: The number of steps of the whole run.
        every: The number of steps after which the losses are updated and, without a terminal, a
            line is printed.
        names: The logs to show.
        initial_step: The step from which the run is resumed.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> line = ProgressLine(num_train_steps=1, every=1, names=("loss",))
        >>> model.fit(texts, labels, verbose=0, callbacks=[line])
    """

    num_train_steps: int
    every: int = 100
    names: tuple[str, ...] = ("loss", "masked_lm_accuracy", "next_sentence_accuracy")
    initial_step: int = 0

    def __post_init__(self):
        super().__post_init__()
        self._bar = None

    def on_train_begin(self, logs=None):
        if self._bar is None and is_chief(self.model.distribute_strategy):
            self._bar = tqdm(
                total=self.num_train_steps,
                initial=self.step,
                unit="step",
                # Without a terminal, `on_step_end` prints complete lines.
                file=sys.stderr if sys.stderr.isatty() else io.StringIO(),
            )

    def on_step_end(self, logs):
        if self._bar is None:
            return
        self._bar.update(self.step - self._bar.n)
        if self.step % self.every and self.step != self.num_train_steps:
            return
        self._bar.set_postfix({k: f"{float(logs[k]):.4g}" for k in self.names if k in logs})
        if not sys.stderr.isatty():
            print(self._bar, file=sys.stderr, flush=True)

    def on_train_end(self, logs=None):
        if self._bar is not None and self.step >= self.num_train_steps:
            self._bar.close()


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
