"""Shows the progress of a run and the time left."""

import dataclasses
import io
import sys

from tqdm import tqdm

from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.distribution.strategies import is_chief


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
