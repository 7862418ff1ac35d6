"""The mean of the weights in the last checkpoints of a run.

Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 6.1.
"""

import keras
import numpy as np

from bert_tf.errors import CheckpointError
from bert_tf.training.checkpointing.checkpoint_files import checkpoint_path, read_checkpoint
from bert_tf.training.checkpointing.training_checkpoint import (
    TrainingCheckpoint,
    assign,
    model_variables,
    network_of,
    require_same_network,
    state_variables,
)


def load_average(checkpoint: TrainingCheckpoint, model: keras.Model, count: int) -> list[int]:
    """Assigns to a model the mean of its weights in the last checkpoints of a run.

    Only the checkpoints at multiples of `save_every` count, so that a run that was interrupted
    gives the same mean. Weights in bfloat16 or float16 are averaged by their float32 copies, sums
    are float64. The optimizer's state stays as it is, and so do the checkpoints.

    Args:
        checkpoint: The run's `TrainingCheckpoint`, with `keep_scheduled` of at least `count`.
        model: The compiled model.
        count: The number of checkpoints.

    Returns:
        The steps of the checkpoints.

    Raises:
        CheckpointError: If there are fewer checkpoints, one is damaged, or they are of another
            network or optimizer.
        UserError: If the model is not compiled with an optimizer.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-4))
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("averaged", 1, keep_scheduled=2)
        >>> model.fit(texts, labels, batch_size=2, epochs=3, callbacks=[checkpoint])
        >>> steps = load_average(checkpoint, model, 2)
        >>> len(steps)
        2
    """
    steps = checkpoint.scheduled_steps()
    if len(steps) < count:
        raise CheckpointError(
            f"{checkpoint.directory} must have {count} checkpoints at multiples of "
            f"{checkpoint.save_every} steps for their mean. Received: {len(steps)} (of steps "
            f"{steps}). Average fewer, or save more often."
        )
    steps = steps[-count:]
    variables = model_variables(model)
    stored = _stored_names(model, variables)
    totals = {}
    for step in steps:
        path = checkpoint_path(checkpoint.directory, step)
        tensors, state = read_checkpoint(path)
        require_same_network(path, state["network"], network_of(model))
        tensors = {name: tensors[there] for name, there in stored.items() if there in tensors}
        for name, values in tensors.items():
            if keras.backend.is_float_dtype(variables[name].dtype):
                totals[name] = totals.get(name, 0.0) + values.astype(np.float64)
    means = {name: (total / count).astype(np.float32) for name, total in totals.items()}
    assign(path, {**tensors, **means}, variables, model.distribute_strategy)
    return steps


def _stored_names(model, variables):
    """Returns by the name of a weight that of its values in a checkpoint: of a copy, if any."""
    names = {id(variable): name for name, variable in state_variables(model).items()}
    copies = getattr(model.optimizer, "float32_copies", list)()
    copy_of = {id(variable): names[id(copy)] for variable, copy in copies}
    return {name: copy_of.get(id(variable), name) for name, variable in variables.items()}
