"""One line that says how far a run is and when it will be done."""

import io
import sys

from tqdm import tqdm

from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.distribution.strategies import is_chief


class ProgressLine(StepCallback):
    """Shows steps, share, rate, ETA and the losses; on a terminal in place, else a line a time.

    Args:
        num_train_steps: Steps of the whole run.
        every: Steps between two looks at the losses, and between two lines where there is no
            terminal.
        names: The logs to show.
        initial_step: The step that the run goes on from.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> line = ProgressLine(num_train_steps=1, every=1, names=("loss",))
        >>> model.fit(texts, labels, verbose=0, callbacks=[line])
    """

    def __init__(
        self,
        num_train_steps: int,
        every: int = 100,
        names: tuple[str, ...] = ("loss", "masked_lm_accuracy", "next_sentence_accuracy"),
        initial_step: int = 0,
    ):
        super().__init__(initial_step)
        self.num_train_steps = num_train_steps
        self.every = every
        self.names = names
        self._bar = None

    def on_train_begin(self, logs=None):
        if self._bar is None and is_chief(self.model.distribute_strategy):
            self._bar = tqdm(
                total=self.num_train_steps,
                initial=self.step,
                unit="step",
                # Without a terminal the line is printed below, whole.
                file=sys.stderr if sys.stderr.isatty() else io.StringIO(),
            )

    def on_step_end(self, logs):
        if self._bar is None:
            return
        self._bar.update(self.step - self._bar.n)
        if self.step % self.every and self.step != self.num_train_steps:
            return
        shown = {name: float(logs[name]) for name in self.names if name in logs}
        self._bar.set_postfix({name: f"{value:.4g}" for name, value in shown.items()})
        if not sys.stderr.isatty():
            print(self._bar, file=sys.stderr, flush=True)

    def on_train_end(self, logs=None):
        if self._bar is not None and self.step >= self.num_train_steps:
            self._bar.close()
