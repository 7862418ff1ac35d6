"""Losses of Keras for models that return logits."""

import keras
import pytest

from bert_tf.errors import UserError
from bert_tf.training.on_logits import loss_on_logits

LOSSES = keras.losses
NAMED = [
    ("sparse_categorical_crossentropy", LOSSES.SparseCategoricalCrossentropy),
    ("categorical_crossentropy", LOSSES.CategoricalCrossentropy),
    ("BinaryCrossentropy", LOSSES.BinaryCrossentropy),
    (LOSSES.BinaryFocalCrossentropy, LOSSES.BinaryFocalCrossentropy),
    (LOSSES.categorical_focal_crossentropy, LOSSES.CategoricalFocalCrossentropy),
]


@pytest.mark.parametrize("given, kind", NAMED)
def test_a_loss_without_arguments_takes_logits(given, kind):
    (loss,) = loss_on_logits([given])
    assert type(loss) is kind and loss.from_logits


def test_other_losses_stay():
    for loss in ("mse", LOSSES.BinaryCrossentropy(from_logits=True), LOSSES.Huber(), None):
        assert loss_on_logits(loss) is loss


@pytest.mark.parametrize(
    "loss, message",
    [
        (LOSSES.BinaryCrossentropy(), r"Pass `keras.losses.BinaryCrossentropy\(from_logits=True"),
        (LOSSES.CategoricalFocalCrossentropy(), "CategoricalFocalCrossentropy"),
        ("kl_divergence", "KLDivergence"),
        (LOSSES.Dice(), "Dice"),
        ("crossentropy", "which cross-entropy"),
    ],
)
def test_losses_of_probabilities_are_refused(loss, message):
    with pytest.raises(UserError, match=message):
        loss_on_logits(loss)
