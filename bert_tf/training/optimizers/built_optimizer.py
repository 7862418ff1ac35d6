"""Optimizers whose model freezes and unfreezes layers."""

import keras

from bert_tf.base import keras_compat
from bert_tf.errors import UserError


def build_for(optimizer: keras.optimizers.Optimizer, variables: list[keras.Variable]) -> None:
    """Lets an optimizer update `variables`, also those that it was not built with.

    The state of the variables that it knows stays, as does its number of steps.

    Args:
        optimizer: The optimizer of a compiled model.
        variables: The variables that are trained now.

    Raises:
        UserError: If it averages the variables, and they are not those that it was built with.

    Example:
        >>> weight, bias = keras.Variable([1.0]), keras.Variable([0.0])
        >>> optimizer = keras.optimizers.Adam()
        >>> build_for(optimizer, [weight])
        >>> build_for(optimizer, [weight, bias])
        >>> optimizer.apply([tf.constant([1.0])], [bias])
    """
    if not optimizer.built:
        optimizer.build(variables)
        return
    known = keras_compat.built_variables(optimizer)
    is_known = set(map(id, known))
    added = [variable for variable in variables if id(variable) not in is_known]
    owner = getattr(optimizer, "inner_optimizer", optimizer)
    if owner.use_ema and (added or len(variables) < len(known)):
        raise UserError(
            "The trained variables must stay the same with `use_ema=True`, or averages are mixed "
            f"up. Received: {len(variables)} variables, and {len(known)} when the optimizer was "
            "built. Compile the model again."
        )
    if added:
        keras_compat.rebuild_optimizer(optimizer, [*known, *added])
