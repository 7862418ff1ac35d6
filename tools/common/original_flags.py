"""Flags of google-research/bert for TPUs and tf.estimator that have no effect here.

The tools accept them, so that the original's command lines run unchanged, and `print_ignored`
reports in one line which of them are ignored.
"""

import sys

from absl import flags

FLAGS = flags.FLAGS
FLAG_HEADINGS = (("", "Accepted and ignored"),)

# Maps names to defaults and help.
_FLAGS = {
    "use_tpu": (False, "Whether to use a TPU."),
    "use_one_hot_embeddings": (False, "Whether to look up embeddings by a matrix product."),
    "num_tpu_cores": (8, "Number of TPU cores."),
    "iterations_per_loop": (1000, "Number of steps per call of the estimator."),
    "tpu_name": (None, "Name or address of the TPU."),
    "tpu_zone": (None, "Google Cloud zone of the TPU."),
    "gcp_project": (None, "Google Cloud project of the TPU."),
    "master": (None, "Address of the TensorFlow master."),
}
_DEFINE = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, type(None): flags.DEFINE_string}
ESTIMATOR_FLAGS = tuple(name for name in _FLAGS if name != "use_one_hot_embeddings")


def define_ignored(names=ESTIMATOR_FLAGS):
    """Defines flags that are accepted and ignored."""
    for name in names:
        default, text = _FLAGS[name]
        _DEFINE[type(default)](name, default, f"Ignored. {text}")


def print_ignored():
    """Prints one line with the ignored flags that were given."""
    defined = FLAGS.flags_by_module_dict()[__name__]
    given = [f"--{flag.name}" for flag in defined if flag.present]
    if given:
        print(
            f"note: {', '.join(given)}: ignored. google-research/bert has such flags for TPUs and "
            "tf.estimator; here the devices that TensorFlow finds are used.",
            file=sys.stderr,
        )
