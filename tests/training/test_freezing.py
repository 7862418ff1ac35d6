"""Freezing, gradual unfreezing, initializing layers again, and Keras callbacks on a task model."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import (
    AdamWeightDecay,
    EpochScores,
    GradualUnfreezing,
    TrainingCheckpoint,
    freeze_layers,
    reinitialize_top_layers,
)

TEXTS = ["good film", "bad film", "the good.", "the bad."] * 2
LABELS = np.array([1, 0, 1, 0] * 2)


@pytest.fixture
def make(tiny_config, tiny_vocabulary):
    def make(**options):
        keras.utils.set_random_seed(5)
        model = BertTextClassifier(
            BertBackbone(tiny_config, **options),
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
        )
        model.compile(AdamWeightDecay(1e-3))
        return model

    return make


def weights(model):
    return {
        variable.path.split("/", 1)[1]: variable.numpy().copy()
        for variable in model.weights
        if "float" in str(variable.dtype)
    }


def changed(before, after):
    """The parts of the model in which a weight changed."""
    parts = set()
    for name in before:
        if not np.array_equal(before[name], after[name]):
            parts.update(
                part
                for part in ("embeddings", "layer_0", "layer_1", "pooler", "classifier")
                if f"{part}/" in name
            )
    return parts


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize("gradient_checkpointing", [False, True])
def test_frozen_layers_stay(make, gradient_checkpointing):
    model = make(gradient_checkpointing=gradient_checkpointing)
    freeze_layers(model, 1)
    before = weights(model)
    model.fit(TEXTS, LABELS, batch_size=8, verbose=0)
    assert changed(before, weights(model)) == {"layer_1", "pooler", "classifier"}
    freeze_layers(model, 0, embeddings=False)
    assert len(model.trainable_variables) == len(before)
    for num_layers in (3, -2):
        with pytest.raises(UserError, match=r"\[0, 2\]"):
            freeze_layers(model, num_layers)


@pytest.mark.parametrize(
    "changes",
    [
        {"relative_attention_num_buckets": 8},
        {"position_embedding_type": "disentangled", "norm_first": True},
    ],
    ids=["distance bias", "distances and norms"],
)
def test_what_all_blocks_share_is_frozen_with_the_last_of_them(tiny_config, changes):
    model = BertTextClassifier(BertBackbone(dataclasses.replace(tiny_config, **changes)))
    encoder = model.backbone.encoder
    of_blocks = {id(variable) for block in encoder.blocks for variable in block.weights}
    shared = [variable for variable in encoder.weights if id(variable) not in of_blocks]
    freeze_layers(model, 1)
    assert shared and all(variable.trainable for variable in shared)
    freeze_layers(model, 2)
    assert not encoder.trainable_variables and not model.backbone.embeddings.trainable_variables


def test_gradual_unfreezing_opens_a_block_an_epoch(make):
    model = make()
    model.compile(AdamWeightDecay(1e-3), run_eagerly=True)
    seen = [weights(model)]
    callbacks = [
        GradualUnfreezing(),
        keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: seen.append(weights(model))),
    ]
    model.fit(TEXTS, LABELS, batch_size=8, epochs=5, verbose=0, callbacks=callbacks)
    head = {"pooler", "classifier"}
    assert [changed(a, b) for a, b in zip(seen, seen[1:])] == [
        head,
        head | {"layer_1"},
        head | {"layer_1", "layer_0"},
        head | {"layer_1", "layer_0", "embeddings"},
        head | {"layer_1", "layer_0", "embeddings"},
    ]


OPTIMIZERS = {
    "AdamWeightDecay": lambda: AdamWeightDecay(1e-3),
    "Adam": lambda: keras.optimizers.Adam(1e-3),
    "Nadam": lambda: keras.optimizers.Nadam(1e-3),
    "SGD": lambda: keras.optimizers.SGD(1e-2, momentum=0.9),
    "Adafactor": lambda: keras.optimizers.Adafactor(1e-2),
    "scaled": lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3)),
}


@pytest.fixture
def without_dropout(tiny_config):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return dataclasses.replace(tiny_config, **rates)


@pytest.mark.parametrize(
    "name",  # "scaled" is Adam with more around it
    [pytest.param(name, marks=pytest.mark.full if name == "Adam" else ()) for name in OPTIMIZERS],
)
def test_an_optimizer_learns_of_variables_that_are_unfrozen(without_dropout, name):
    """It keeps its state: as if it had been built with all of them."""
    one_block = dataclasses.replace(without_dropout, num_hidden_layers=1)
    ids = np.random.default_rng(3).integers(5, 60, [8, 6])
    steps = []
    for frozen_first in (False, True):
        keras.utils.set_random_seed(5)
        model = BertTextClassifier(BertBackbone(one_block))
        freeze_layers(model, int(frozen_first), embeddings=frozen_first)
        model.compile(OPTIMIZERS[name](), run_eagerly=True)
        model.fit({"token_ids": ids}, LABELS, epochs=3, verbose=0, callbacks=[GradualUnfreezing()])
        steps.append(weights(model))
        assert int(model.optimizer.iterations) == 3
    assert steps[0].keys() == steps[1].keys()
    for path, expected in steps[0].items():
        np.testing.assert_allclose(steps[1][path], expected, rtol=1e-6, atol=1e-7, err_msg=path)


def test_unfrozen_after_a_first_fit_and_by_a_users_callback(make):
    model = make()
    freeze_layers(model, -1)
    before = weights(model)
    model.fit(TEXTS, LABELS, verbose=0)
    assert changed(before, weights(model)) == {"pooler", "classifier"}
    freeze_layers(model, 1)
    before = weights(model)
    model.fit(TEXTS, LABELS, verbose=0)
    assert changed(before, weights(model)) == {"layer_1", "pooler", "classifier"}

    def unfreeze(epoch, logs):
        model.backbone.embeddings.trainable = epoch == 1

    seen = [weights(model)]
    callback = keras.callbacks.LambdaCallback(
        on_epoch_begin=unfreeze, on_epoch_end=lambda *_: seen.append(weights(model))
    )
    model.fit(TEXTS, LABELS, epochs=3, verbose=0, callbacks=callback)
    steps = [changed(a, b) for a, b in zip(seen, seen[1:])]
    assert ["embeddings" in step for step in steps] == [False, True, False]


def test_a_resumed_run_unfreezes_as_an_uninterrupted_one(without_dropout, tmp_path):
    """The checkpoint has the state of more variables than are trained when it is restored."""
    ids = np.random.default_rng(3).integers(5, 60, [8, 6])

    def fit(epochs, initial_epoch=0, directory=None):
        keras.utils.set_random_seed(5)
        model = BertTextClassifier(BertBackbone(without_dropout))
        freeze_layers(model, -1)
        model.compile(AdamWeightDecay(1e-3), run_eagerly=True)
        callbacks = [GradualUnfreezing()]
        if directory is not None:
            callbacks.append(TrainingCheckpoint(directory))
            assert callbacks[-1].restore(model) == initial_epoch
        options = {"epochs": epochs, "initial_epoch": initial_epoch, "callbacks": callbacks}
        model.fit({"token_ids": ids}, LABELS, shuffle=False, verbose=0, **options)
        return weights(model)

    expected = fit(3)
    fit(2, directory=tmp_path)
    resumed = fit(3, 2, tmp_path)
    for path, values in expected.items():
        np.testing.assert_array_equal(resumed[path], values, err_msg=path)


def test_moving_averages_are_of_variables_that_stay(without_dropout):
    model = BertTextClassifier(BertBackbone(without_dropout))
    freeze_layers(model, 1)
    model.compile(keras.optimizers.Adam(1e-3, use_ema=True), run_eagerly=True)
    data = {"token_ids": np.ones([8, 6], np.int32)}, LABELS
    model.fit(*data, verbose=0)
    freeze_layers(model, 0)
    with pytest.raises(UserError, match="use_ema=True"):
        model.fit(*data, verbose=0)


def test_top_layers_are_drawn_anew(make, tiny_config):
    model = make()
    for variable in model.trainable_variables:
        variable.assign(variable + 0.5)
    before = weights(model)
    reinitialize_top_layers(model, 1, seed=3)
    after = weights(model)
    assert changed(before, after) == {"layer_1", "pooler"}
    block = model.backbone.encoder.blocks[1]
    kernel = block.intermediate.kernel.numpy()
    assert abs(kernel.std() / tiny_config.initializer_range - 0.88) < 0.1  # cut at two deviations
    assert (block.intermediate.bias.numpy() == 0).all()
    assert (block.output_layer_norm.gamma.numpy() == 1).all()
    reinitialize_top_layers(model, 1, seed=3)
    assert not changed(after, weights(model))


@pytest.mark.usefixtures("eager_steps")
def test_early_stopping_and_best_checkpoint(make, tmp_path):
    """Keras's own callbacks, watching a score of ours."""
    model = make()
    scores = iter([0.5, 0.9, 0.8, 0.7, 0.6])

    class Planted(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["val_planted"] = next(scores)
            if epoch == 1:
                model.save_weights(tmp_path / "epoch_1.weights.h5")

    stop = keras.callbacks.EarlyStopping(
        "val_planted", mode="max", patience=2, restore_best_weights=True
    )
    best = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.weights.h5",
        "val_planted",
        mode="max",
        save_best_only=True,
        save_weights_only=True,
    )
    history = model.fit(
        TEXTS,
        LABELS,
        batch_size=8,
        epochs=5,
        verbose=0,
        callbacks=[EpochScores(TEXTS, LABELS), Planted(), stop, best],
    ).history
    assert history["val_planted"] == [0.5, 0.9, 0.8, 0.7]
    assert {"val_accuracy", "val_auc", "val_matthews", "val_loss"} <= set(history)
    stopped = weights(model)
    for name in ("best", "epoch_1"):
        model.load_weights(tmp_path / f"{name}.weights.h5")
        assert not changed(stopped, weights(model))
