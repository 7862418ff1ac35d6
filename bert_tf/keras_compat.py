"""What this package needs of Keras and TensorFlow that has no public name.

Each part says what the public way would be. All of it was tried on Keras 3.15.1 with TensorFlow
2.21.0.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.compile_utils import get_loss


@contextlib.contextmanager
def unlocked(layer: keras.layers.Layer) -> Iterator[None]:
    """Lets variables be added to a layer that is built.

    Public way: none. `add_weight` is refused after `build`.
    """
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def remove_variable(layer: keras.layers.Layer, name: str) -> None:
    """Replaces a variable of a layer by None. Neither Keras nor TensorFlow saves it any longer.

    Public way: `delattr(layer, name)`, which also collects garbage, so it takes long for a model.
    """
    layer._untrack_variable(getattr(layer, name))
    layer._delete_tracking(name)
    setattr(layer, name, None)


def replace_variable(layer: keras.layers.Layer, name: str, values: dict[str, tf.Tensor]) -> None:
    """Replaces a variable of a built layer by others, which are not trained.

    Args:
        layer: The layer.
        name: The attribute with the variable.
        values: The values of the new variables by the attributes that get them.
    """
    remove_variable(layer, name)
    with unlocked(layer):
        for new_name, value in values.items():
            variable = layer.add_weight(
                name=new_name,
                shape=value.shape,
                dtype=value.dtype.name,
                initializer="zeros",
                trainable=False,
                autocast=False,
            )
            variable.assign(value)
            setattr(layer, new_name, variable)


def loss_object(loss: Any) -> keras.losses.Loss:
    """Returns the loss that Keras makes of what `compile` takes as one.

    Public way: `keras.losses.get`, which returns a function as it is, without a reduction.
    """
    return get_loss(loss, None, None)


def replace_losses(model: keras.Model, losses: Any) -> None:
    """Replaces the losses that a compiled model computes, before its first step.

    Public way: `compile`, which would also change `model.loss` and the saved configuration.
    """
    model._compile_loss._user_loss = losses


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """Returns the metric `loss` of a compiled model.

    Public way: none. `model.metrics` has it among the others.
    """
    return model._loss_tracker


def has_compiled_metrics(model: keras.Model) -> bool:
    """Returns whether `compile` was given metrics.

    Public way: none. `model.metrics` also has those that are not given to `compile`.
    """
    return model._compile_metrics is not None


def is_validation_in_fit(options: dict[str, Any]) -> bool:
    """Returns whether `evaluate` is called by Keras's `fit`, which has prepared the data.

    Public way: none.

    Args:
        options: The keyword arguments of `evaluate`.
    """
    return bool(options.get("_use_cached_eval_dataset"))


class BuildsUnderStrategies:
    """A Keras model that `fit` builds, with its optimizer, under every `tf.distribute` strategy.

    Keras's own method computes the mean of distributed batches, which fails for batches that are
    tuples under `MultiWorkerMirroredStrategy`.

    Public way: none.
    """

    def trained_variables(self) -> list[keras.Variable]:
        """Returns the variables that the optimizer updates. The model overrides it."""
        raise NotImplementedError

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        if self._distribute_strategy is None:
            return
        strategy = self.distribute_strategy
        if data_batch is None and iterator is not None:
            for _, _, batches in iterator:
                data_batch = tf.nest.map_structure(
                    lambda value: strategy.experimental_local_results(value)[0], next(batches)
                )
                break
        with strategy.scope():
            if self.optimizer is not None and not self.optimizer.built:
                self.optimizer.build(self.trained_variables())
            self._symbolic_build(data_batch=data_batch)
