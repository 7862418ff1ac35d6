"""The devices that `training_flags.py` names, and the processes that train on them together.

With --distribution_strategy=multi_worker_mirrored, every worker runs the same program. All compute
the same steps and predictions, and worker 0 writes the results.
"""

import atexit
import functools
import os
import sys
import tempfile
from collections.abc import Callable

from bert_tf.base import supervision
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.training_flags import DTYPES

# The errors that TensorFlow raises when a worker of a collective operation is lost.
_PEER_ERRORS = ("Unavailable", "Aborted", "Cancelled", "DeadlineExceeded", "Internal")


def run(main: Callable[[], None]) -> Callable[[], None]:
    """Returns `main` for each worker: it ends with the others, and with status 75 if one is lost.

    `bert-tf launch_workers` starts all workers again after that status.
    """

    def run_together():
        output_dir = FLAGS.output_dir
        supervision.beat()  # from here on, a worker that hangs before its first step is noticed
        try:
            main()
            if _are_several():
                from bert_tf.training.distribution.strategies import end_together

                end_together(strategy())
        except Exception as error:
            if _are_several():
                _leave_if_lost(error, os.path.join(output_dir, "checkpoints"))
            raise

    return run_together


def require_training() -> None:
    """Raises `UserError` if several workers are to predict without training."""
    if _are_several() and not FLAGS.do_train:
        expected = "be used with --do_train: one process predicts"
        received = f"--distribution_strategy={FLAGS.distribution_strategy} without --do_train."
        raise user_error("--distribution_strategy", expected, received)


@functools.cache
def strategy():
    """Returns the strategy of the flags, and sets the dtype of the models that are made later.

    The first call must come before the first operation of TensorFlow.
    """
    import keras

    from bert_tf.training import make_strategy
    from bert_tf.training.distribution import is_chief

    made = make_strategy(FLAGS.distribution_strategy, FLAGS.tpu_name)
    keras.config.set_dtype_policy(DTYPES[FLAGS.mixed_precision])
    if not is_chief(made):
        sys.stdout = open(os.devnull, "w")
    return made


def is_first() -> bool:
    """Returns whether this process writes the results: it is worker 0 or the only one."""
    from bert_tf.training.distribution import is_chief

    return is_chief(strategy())


def restore(checkpoint, model) -> int:
    """Returns the step of the newest checkpoint, which the model then has; 0 without one."""
    from bert_tf.training.distribution.strategies import largest_of_workers

    step = checkpoint.restore(model)
    if _are_several() and largest_of_workers(strategy(), step) != step:
        raise UserError(
            f"All workers must find the same checkpoint. Received: step {step} on this one, a "
            "later one on another. --output_dir must be a directory that all of them see."
        )
    return step


def end_training() -> None:
    """Waits until the first worker has written its last checkpoint.

    What the others write to --output_dir afterwards goes to a directory that is removed. What
    follows, such as predictions, may take longer than the launcher waits for a step.
    """
    from bert_tf.training.distribution.strategies import largest_of_workers

    supervision.keep_beating()
    if not _are_several():
        return
    largest_of_workers(strategy(), 0)
    if not is_first():
        directory = tempfile.TemporaryDirectory()
        atexit.register(directory.cleanup)
        FLAGS.output_dir = directory.name


def _are_several():
    return FLAGS.distribution_strategy == "multi_worker_mirrored"


def _leave_if_lost(error, checkpoints):
    """Ends this process with status 75 if an error means that starting all workers again helps."""
    from bert_tf.training.checkpointing.checkpoint_files import newest_checkpoint
    from bert_tf.training.distribution.strategies import leave

    kind = type(error).__name__.removesuffix("Error")
    newest = newest_checkpoint(checkpoints)
    if kind == "AddressInUse":  # the launcher chooses other ports, or the port becomes free
        leave(str(error), newest)
    if kind in _PEER_ERRORS:
        reason = error.message.splitlines()[0][:300]
        leave(f"an operation with the other workers failed ({reason})", newest)
