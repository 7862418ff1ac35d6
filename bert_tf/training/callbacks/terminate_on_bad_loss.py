"""Stops training when the loss is NaN or infinite."""

import dataclasses
import math
import os
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.files import atomic_path
from bert_tf.errors import UserError
from bert_tf.training.callbacks.step_callback import StepCallback
from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint


@dataclasses.dataclass(eq=False)
class TerminateOnBadLoss(StepCallback):
    """Stops training with a `UserError` at the first NaN or infinite loss, and writes the batch.

    Put it before `TrainingCheckpoint` in the list of callbacks.

    Args:
        checkpoint: The callback whose newest checkpoint the message names.
        batch_at: A function: `batch_at(step)` is the batch of the step after `step`, a nested
            structure of tensors. It is written as `bad-batch-<step>.npz`, with names joined by "/".
        directory: The directory of that file.
        initial_step: The step from which the run is resumed.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> batch = (model.tokenize(texts), model.targets(labels))
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints")
        >>> stop = TerminateOnBadLoss(checkpoint, lambda step: batch, "bad_batches")
        >>> model.fit(tf.data.Dataset.from_tensors(batch), callbacks=[stop, checkpoint])
    """

    checkpoint: TrainingCheckpoint
    batch_at: Callable[[int], object]
    directory: str | os.PathLike
    initial_step: int = 0

    def on_step_end(self, logs):
        # The mean over the epoch is NaN or infinite as soon as one loss is.
        loss = float(logs["loss"])
        if math.isfinite(loss):
            return
        resolver = self.model.distribute_strategy.cluster_resolver
        worker = f"-worker{resolver.task_id}" if resolver and resolver.task_type else ""
        path = os.path.join(self.directory, f"bad-batch-{self.step}{worker}.npz")
        arrays = {}
        for names, values in keras.tree.flatten_with_path(self.batch_at(self.step - 1)):
            dense = values.to_tensor() if isinstance(values, tf.RaggedTensor) else values
            arrays["/".join(map(str, names))] = np.asarray(dense)
        with atomic_path(path) as new, open(new, "wb") as file:
            np.savez(file, **arrays)
        raise UserError(
            f"`loss` must be finite. Received: loss={loss} at step {self.step}. Its batch is in "
            f"{path}; the last good checkpoint is {self.checkpoint.newest() or 'none'}. Check the "
            "batch, or resume from the checkpoint with a lower learning rate."
        )
