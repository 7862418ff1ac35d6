"""Flags of google-research/bert for TPUs and tf.estimator that have no effect here.

The tools accept them, so that the original's command lines run unchanged, and `tell_ignored`
reports in one line which of them are ignored.
"""

import sys

from absl import flags

FLAGS = flags.FLAGS

_BOOLS = {
    "use_tpu": "Whether to use a TPU.",
    "use_one_hot_embeddings": "Whether to look up embeddings by a matrix product.",
}
_INTEGERS = {
    "num_tpu_cores": (8, "Number of TPU cores."),
    "iterations_per_loop": (1000, "Number of steps per call of the estimator."),
}
_STRINGS = {
    "tpu_name": "Name or address of the TPU.",
    "tpu_zone": "Google Cloud zone of the TPU.",
    "gcp_project": "Google Cloud project of the TPU.",
    "master": "Address of the TensorFlow master.",
}
ESTIMATOR_FLAGS = ("use_tpu", "num_tpu_cores", "iterations_per_loop", *_STRINGS)


def define_ignored(*names):
    """Defines flags that are accepted and ignored."""
    for name in names:
        if name in _BOOLS:
            flags.DEFINE_bool(name, False, f"Ignored. {_BOOLS[name]}")
        elif name in _INTEGERS:
            flags.DEFINE_integer(name, _INTEGERS[name][0], f"Ignored. {_INTEGERS[name][1]}")
        else:
            flags.DEFINE_string(name, None, f"Ignored. {_STRINGS[name]}")


def tell_ignored(*names):
    """Prints one line with those of these flags that were given."""
    given = [f"--{name}" for name in names if FLAGS[name].present]
    if given:
        print(
            f"note: {', '.join(given)}: ignored. google-research/bert has such flags for TPUs and "
            "tf.estimator; here the devices that TensorFlow finds are used.",
            file=sys.stderr,
        )
