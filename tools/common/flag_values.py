"""Parses the values of flags."""

from absl import flags

from bert_tf.errors import UserError

FLAGS = flags.FLAGS


def positive_integers(name: str) -> list[int]:
    """Returns the values of a list flag as positive integers."""
    values = FLAGS[name].value
    if not all(value.isdecimal() and int(value) for value in values):
        raise UserError(
            f"--{name} must be positive whole numbers. Received: --{name}={','.join(values)}"
        )
    return [int(value) for value in values]
