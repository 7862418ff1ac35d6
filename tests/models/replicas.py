"""What test_distribution.py runs in processes of their own: two replicas need two CPU devices."""

import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertPretrainer
from bert_tf.errors import UserError
from bert_tf.models.training_model import TrainingModel
from bert_tf.training import AdamWeightDecay, WarmupLinearDecay

ROWS, LENGTH, PLACES, STEPS = 8, 10, 3, 20


def model_and_optimizer(gradient_accumulation_steps=1, **backbone_options):
    """A tiny model without dropout, at the same weights each time, compiled."""
    keras.utils.set_random_seed(3)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LENGTH,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertPretrainer(BertBackbone(config, **backbone_options))
    model.compile(
        AdamWeightDecay(WarmupLinearDecay(2e-3, STEPS, 4)),
        gradient_accumulation_steps=gradient_accumulation_steps,
    )
    return model


def examples(steps=STEPS, seed=5):
    """Features and labels `[steps * ROWS, ...]`; half of each batch has nearly all its masks."""
    rng = np.random.default_rng(seed)
    count = steps * ROWS
    lengths = rng.integers(5, LENGTH + 1, count)
    masks = np.where(np.arange(count) % ROWS < ROWS // 2, PLACES, rng.integers(0, 2, count))
    features = {
        "token_ids": rng.integers(5, 64, (count, LENGTH)).astype(np.int32),
        "padding_mask": np.arange(LENGTH) < lengths[:, None],
        "masked_positions": np.argsort(rng.random((count, 5)))[:, :PLACES].astype(np.int32),
    }
    labels = {
        "masked_ids": rng.integers(5, 64, (count, PLACES)).astype(np.int32),
        "masked_weights": (np.arange(PLACES) < masks[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, count).astype(np.int32),
    }
    return features, labels


def rows_of_numbers(weighted: bool):
    """x `[7, 3]`, y `[7, 1]` and sample weights `[7]` or None."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(7, 1)).astype(np.float32)
    return x, y, rng.uniform(size=7).astype(np.float32) if weighted else None


def linear_model(base, names=None, regularizer=None):
    """A linear map of x `[B, 3]`, as a subclass of `base`; with names one for each output."""
    layers = {
        name: keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer=regularizer)
        for name in names or (None,)
    }

    class Linear(base):
        def __init__(self):
            super().__init__()
            self.maps = list(layers.values())

        def call(self, x):
            outputs = [layer(x) for layer in self.maps]
            if names is None:
                return outputs[0]
            return dict(zip(names, outputs)) if isinstance(names[0], str) else outputs

    model = Linear()
    model(tf.zeros([1, 3]))
    return model


def assert_step_is_kerass(loss, data, names=None, regularizer=None, strategy=None, **options):
    """In three parts, or over replicas, a step and its loss are those of plain Keras in one."""
    plain = linear_model(keras.Model, names, regularizer)
    plain.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True, **options)
    expected = plain.train_on_batch(*data)
    if strategy is None:
        model = linear_model(TrainingModel, names, regularizer)
        model.compile(
            keras.optimizers.SGD(0.1),
            loss,
            run_eagerly=True,
            gradient_accumulation_steps=3,
            **options,
        )
        received = model.train_on_batch(*data)
    else:
        with strategy.scope():
            model = linear_model(TrainingModel, names, regularizer)
            model.compile(keras.optimizers.SGD(0.1), loss, **options)
        dataset = tf.data.Dataset.from_tensors(tuple(part for part in data if part is not None))
        received = model.fit(dataset, verbose=0).history["loss"][0]
    np.testing.assert_allclose(np.ravel(received)[0], np.ravel(expected)[0], rtol=1e-5)
    for mine, keras_own in zip(model.trainable_variables, plain.trainable_variables):
        np.testing.assert_allclose(mine.numpy(), keras_own.numpy(), rtol=1e-5, atol=1e-6)


def compare_reductions() -> None:
    """A step of two replicas is plain Keras's on one, whatever the reduction."""
    strategy = _two_replicas()
    for reduction in ("sum", "sum_over_batch_size", "mean_with_sample_weight"):
        loss = keras.losses.MeanSquaredError(reduction=reduction)
        assert_step_is_kerass(loss, rows_of_numbers(True), strategy=strategy)
    assert_step_is_kerass(
        "mse", rows_of_numbers(False), strategy=strategy, regularizer=keras.regularizers.L2(0.5)
    )
    with strategy.scope(), pytest.raises(UserError, match="reduction=None"):
        linear_model(TrainingModel).compile("sgd", keras.losses.MeanSquaredError(reduction=None))


def compare_low_precision() -> None:
    """Weights in bfloat16 take the same steps on two replicas as on one."""
    results = []
    for strategy in (tf.distribute.get_strategy(), _two_replicas()):
        with strategy.scope():
            weight = keras.Variable(np.ones(3), dtype="bfloat16", name="kernel")
            optimizer = AdamWeightDecay(1e-3)
            optimizer.build([weight])
        share = tf.constant([1.0, 2.0, 3.0], tf.bfloat16) / strategy.num_replicas_in_sync
        for _ in range(6):
            strategy.run(lambda: optimizer.apply([share], [weight]))
        results.append(weight.numpy().astype(np.float32))
    assert (results[0] < 1.0).all()
    np.testing.assert_array_equal(*results)


def _two_replicas():
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


class Steps(keras.callbacks.Callback):
    """Keeps each step's own values: the metrics are reset before it."""

    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(value) for name, value in logs.items()})


def fitted(model, steps=STEPS):
    """Trains `steps` steps; each step's logs, by name, `[steps]`."""
    record = Steps()
    dataset = tf.data.Dataset.from_tensor_slices(examples()).batch(ROWS, drop_remainder=True)
    model.fit(dataset.take(steps), verbose=0, shuffle=False, callbacks=[record])
    return {name: np.array([log[name] for log in record.logs]) for name in record.logs[0]}


def weights_of(model):
    return {f"weight_{index}": v.numpy() for index, v in enumerate(model.trainable_variables)}


def train(directory: str, arrangements: dict[str, tuple[list[str], int]]) -> None:
    """Trains on devices, all in this process, in parts; writes logs and weights to `NAME.npz`.

    Args:
        directory: Where the files go.
        arrangements: Name -> the devices and `gradient_accumulation_steps`.
    """
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    for name, (devices, parts) in arrangements.items():
        strategy = tf.distribute.get_strategy()
        if len(devices) > 1:
            strategy = tf.distribute.MirroredStrategy(devices)
        with strategy.scope():
            model = model_and_optimizer(parts)
        logs = fitted(model)
        data = tf.data.Dataset.from_tensor_slices(examples(3, seed=8)).batch(ROWS)
        evaluated = model.evaluate(data, verbose=0, return_dict=True)
        logs.update({f"val_{log}": value for log, value in evaluated.items()})
        np.savez(os.path.join(directory, f"{name}.npz"), **logs, **weights_of(model))
        if len(devices) > 1:
            with pytest.raises(
                UserError, match="MirroredStrategy with 2 replicas. Leave `jit_compile`"
            ):
                model.compile("sgd", jit_compile=True)


def train_worker(path: str) -> None:
    """One of the workers that TF_CONFIG lists; the first writes logs and weights to `path`."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = model_and_optimizer()
    logs = fitted(model)
    if strategy.cluster_resolver.task_id == 0:
        np.savez(path, **logs, **weights_of(model))
