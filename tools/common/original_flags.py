"""Flags of google-research/bert for TPUs and tf.estimator that have no effect here.

The tools accept them, so that the original's command lines run unchanged, and `print_ignored`
reports in one line which of them are ignored.
"""

import sys

from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Accepted and ignored"),)

_FLAGS = {
    "use_tpu": "(bool, false): Ignored. Whether to use a TPU.",
    "use_one_hot_embeddings": "(bool, false): Ignored. Whether to look up embeddings by a matrix "
    "product.",
    "num_tpu_cores": "(int, 8): Ignored. Number of TPU cores.",
    "iterations_per_loop": "(int, 1000): Ignored. Number of steps per call of the estimator.",
    "tpu_zone": "(str): Ignored. Google Cloud zone of the TPU.",
    "gcp_project": "(str): Ignored. Google Cloud project of the TPU.",
    "master": "(str): Ignored. Address of the TensorFlow master.",
}
# Programs that train have `tpu_name` themselves.
ESTIMATOR_FLAGS = ("num_tpu_cores", "iterations_per_loop", "tpu_zone", "gcp_project", "master")


def define_ignored(names=ESTIMATOR_FLAGS):
    """Defines flags that are accepted and ignored."""
    define_flags("\n".join(f"{name} {_FLAGS[name]}" for name in names))


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
