"""What programs print while they work, and at their end."""

import os
import shlex
import sys

from bert_tf.base.progress import shows_bars
from bert_tf.tools.common.flag_table import FLAGS


def training_verbose() -> int:
    """Returns Keras's `verbose` for training: a progress bar, or elsewhere a line per epoch."""
    return 1 if shows_bars(sys.stdout) else 2


def predicting_verbose() -> int:
    """Returns Keras's `verbose` for evaluation and prediction: a progress bar, or nothing."""
    return 1 if shows_bars(sys.stdout) else 0


def print_result(
    what: str, path: str, purpose: str = "", program: str = "", **options: str
) -> None:
    """Prints what a program made and where, and the command for the next step.

    Args:
        what: The result, such as "model".
        path: Its file or directory.
        purpose: What the next step does, such as "Predict".
        program: The program that does it.
        **options: Its flags. A value in capitals, such as "FILE", is for the reader to fill in.
    """
    print(f"{what}: {path}")
    if program:
        given = [f"--{name}={shlex.quote(value)}" for name, value in options.items()]
        print(f"{purpose} with: bert-tf {' '.join([program, *given])}")


def print_model(model_dir: str | None = None) -> None:
    """Prints where a trained model is, and how to predict with it.

    Args:
        model_dir: Its directory; by default `model` in --output_dir.
    """
    model_dir = model_dir or os.path.join(FLAGS.output_dir, "model")
    print_result("model", model_dir, "Predict", "predict", model_dir=model_dir, input_file="FILE")
