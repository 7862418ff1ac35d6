"""Keras's losses for models that return logits: by default, they take probabilities."""

from typing import Any

import keras

from bert_tf.errors import UserError, require

# The functions and the classes that Keras finds by the same names.
_CROSSENTROPIES = {
    keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
    keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
    keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
    keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
    keras.losses.sparse_categorical_crossentropy: keras.losses.SparseCategoricalCrossentropy,
}
_OF_PROBABILITIES = {
    keras.losses.kl_divergence: keras.losses.KLDivergence,
    keras.losses.categorical_generalized_cross_entropy: (
        keras.losses.CategoricalGeneralizedCrossEntropy
    ),
    keras.losses.dice: keras.losses.Dice,
    keras.losses.tversky: keras.losses.Tversky,
}
_RULE = "`loss` must take logits, which the model returns, not probabilities. Received: loss="


def loss_on_logits(loss: Any) -> Any:
    """Returns the `loss` of `compile` for a model that returns logits.

    A name, function or class of Keras becomes the same loss with `from_logits=True`.

    Args:
        loss: What `keras.Model.compile` takes.

    Raises:
        UserError: If it is a loss of probabilities.

    Example:
        >>> loss_on_logits("sparse_categorical_crossentropy").from_logits
        True
    """
    return keras.tree.map_structure(_on_logits, loss)


def _on_logits(loss):
    rule = "must say which cross-entropy it is"
    fix = "Pass for example 'sparse_categorical_crossentropy'."
    is_valid = not isinstance(loss, str) or loss.lower() not in ("crossentropy", "ce")
    require(is_valid, rule, UserError, fix, loss=loss)
    found = keras.losses.get(loss)
    kind = _CROSSENTROPIES.get(found, type(found))
    if kind in _CROSSENTROPIES.values():
        if not isinstance(loss, keras.losses.Loss):
            return kind(from_logits=True)
        if not loss.from_logits:
            name = kind.__name__
            raise UserError(
                f"{_RULE}keras.losses.{name}(from_logits=False). Pass "
                f"`keras.losses.{name}(from_logits=True)`."
            )
    kind = _OF_PROBABILITIES.get(found, kind)
    if kind in _OF_PROBABILITIES.values():
        raise UserError(
            f"{_RULE}keras.losses.{kind.__name__}. Pass for example "
            "`keras.losses.CategoricalCrossentropy(from_logits=True)`."
        )
    return loss
