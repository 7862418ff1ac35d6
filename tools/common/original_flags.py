"""Flags of google-research/bert for TPUs and tf.estimator, which have nothing to set here.

They are taken, so that its command lines run as they are, and `tell_ignored` says so in one line.
"""

import sys

from absl import flags

FLAGS = flags.FLAGS

_BOOLS = {
    "use_tpu": "Whether to use a TPU.",
    "use_one_hot_embeddings": "Whether to look embeddings up by a matrix product.",
}
_INTEGERS = {
    "num_tpu_cores": (8, "Cores of the TPU."),
    "iterations_per_loop": (1000, "Steps of a call of the estimator."),
}
_STRINGS = {
    "tpu_name": "Name or address of the TPU.",
    "tpu_zone": "Zone of the TPU.",
    "gcp_project": "Project of the TPU.",
    "master": "Address of TensorFlow's master.",
}
ESTIMATOR_FLAGS = ("use_tpu", "num_tpu_cores", "iterations_per_loop", *_STRINGS)


def define_ignored(*names):
    """Defines flags that are taken and ignored."""
    for name in names:
        if name in _BOOLS:
            flags.DEFINE_bool(name, False, f"Ignored. {_BOOLS[name]}")
        elif name in _INTEGERS:
            flags.DEFINE_integer(name, _INTEGERS[name][0], f"Ignored. {_INTEGERS[name][1]}")
        else:
            flags.DEFINE_string(name, None, f"Ignored. {_STRINGS[name]}")


def tell_ignored(*names):
    """Says in one line which of these flags were given."""
    given = [f"--{name}" for name in names if FLAGS[name].present]
    if given:
        print(
            f"note: {', '.join(given)}: ignored. google-research/bert has such flags for TPUs and "
            "tf.estimator; here training runs on what TensorFlow finds.",
            file=sys.stderr,
        )
