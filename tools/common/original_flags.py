"""Flags of google-research/bert for TPUs and tf.estimator that have no effect here.

The tools accept them, so that the original's command lines run unchanged, and `tell_ignored`
reports in one line which of them are ignored.
"""

import sys

from absl import flags

FLAGS = flags.FLAGS

_HELP = {
    "use_tpu": "Whether to use a TPU.",
    "use_one_hot_embeddings": "Whether to look up embeddings by a matrix product.",
    "num_tpu_cores": "Number of TPU cores.",
    "iterations_per_loop": "Number of steps per call of the estimator.",
    "tpu_name": "Name or address of the TPU.",
    "tpu_zone": "Google Cloud zone of the TPU.",
    "gcp_project": "Google Cloud project of the TPU.",
    "master": "Address of the TensorFlow master.",
}
_INTEGERS = {"num_tpu_cores": 8, "iterations_per_loop": 1000}
ESTIMATOR_FLAGS = tuple(name for name in _HELP if name != "use_one_hot_embeddings")


def define_ignored(names=ESTIMATOR_FLAGS):
    """Defines flags that are accepted and ignored."""
    for name in names:
        text = f"Ignored. {_HELP[name]}"
        if name.startswith("use_"):
            flags.DEFINE_bool(name, False, text)
        elif name in _INTEGERS:
            flags.DEFINE_integer(name, _INTEGERS[name], text)
        else:
            flags.DEFINE_string(name, None, text)


def tell_ignored():
    """Prints one line with the ignored flags that were given."""
    defined = FLAGS.flags_by_module_dict()[__name__]
    given = [f"--{flag.name}" for flag in defined if flag.present]
    if given:
        print(
            f"note: {', '.join(given)}: ignored. google-research/bert has such flags for TPUs and "
            "tf.estimator; here the devices that TensorFlow finds are used.",
            file=sys.stderr,
        )
