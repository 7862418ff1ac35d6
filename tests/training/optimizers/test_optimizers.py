"""What the optimizers share: their arguments, layer-wise rates, and loss scaling."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPretrainer, ops
from bert_tf.errors import UserError
from bert_tf.training import LAMB, AdamWeightDecay
from bert_tf.training.optimizers import adam_weight_decay
from bert_tf.training.optimizers.adam_weight_decay import layer_multipliers
from tests.training.optimizers.original_adam import OriginalAdam


@pytest.mark.parametrize(
    "kind, own",
    [
        (
            AdamWeightDecay,
            {"learning_rate": 5e-5, "bias_correction": False, "name": "adam_weight_decay"},
        ),
        (LAMB, {"learning_rate": 1e-3, "bias_correction": True, "name": "lamb"}),
    ],
)
def test_the_signature_shows_the_defaults(kind, own):
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    }
    assert defaults == {
        "learning_rate": own["learning_rate"],
        "weight_decay_rate": 0.01,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-6,
        "clip_norm": 1.0,
        "bias_correction": own["bias_correction"],
        "exclude_from_weight_decay_names": ("gamma", "beta", "bias"),
        "layer_decay": None,
        "dynamic_loss_scale": False,
        "name": own["name"],
        "learning_rate_multipliers": None,
        "l2_regularization": 0.0,
        "all_reduce_dtype": None,
        "all_reduce_bytes_per_pack": 0,
    }
    config = kind().get_config()
    assert config["learning_rate"] == pytest.approx(own["learning_rate"])
    assert config["bias_correction"] == own["bias_correction"] and config["name"] == own["name"]


def test_rates_fall_with_the_depth():
    paths = [
        "bert/embeddings/word_embeddings",
        "bert/encoder/layer_0/attention/kernel",
        "bert/encoder/layer_1/output_layer_norm/gamma",
        "bert/pooler/dense/kernel",
        "classifier/kernel",
    ]
    assert layer_multipliers(paths, 0.5) == [0.125, 0.25, 0.5, 1.0, 1.0]
    assert layer_multipliers(paths, None) == [1.0] * 5


def test_rates_by_a_part_of_the_path():
    layers = [keras.layers.Dense(2, name=name) for name in ("head", "crf")]
    for layer in layers:
        layer.build([None, 3])
    variables = [layer.kernel for layer in layers]
    optimizer = AdamWeightDecay(
        0.01,
        weight_decay_rate=0.0,
        bias_correction=True,
        epsilon=1e-12,
        learning_rate_multipliers={"crf": 100.0},
    )
    before = [variable.numpy() for variable in variables]
    optimizer.apply([tf.ones([3, 2])] * 2, variables)
    for variable, old, rate in zip(variables, before, (0.01, 1.0)):
        np.testing.assert_allclose(old - variable.numpy(), rate, rtol=1e-4)
    again = AdamWeightDecay.from_config(optimizer.get_config())
    assert again.learning_rate_multipliers == {"crf": 100.0}


def test_each_variable_of_a_model_gets_its_rate(tiny_config):
    """Adam's first steps are as long as the rate, whatever the gradient."""
    model = BertPretrainer(BertBackbone(tiny_config))
    optimizer = AdamWeightDecay(
        0.01,
        weight_decay_rate=0.0,
        clip_norm=None,
        bias_correction=True,
        epsilon=1e-12,
        layer_decay=0.5,
    )
    before = [variable.numpy() for variable in model.trainable_variables]
    gradients = [tf.ones(variable.shape) for variable in model.trainable_variables]
    optimizer.apply(gradients, model.trainable_variables)
    for variable, old in zip(model.trainable_variables, before):
        depth = 3
        if "embeddings" in variable.path:
            depth = 0
        if "layer_0" in variable.path or "layer_1" in variable.path:
            depth = 1 + int("layer_1" in variable.path)
        np.testing.assert_allclose(
            old - variable.numpy(), 0.01 * 0.5 ** (3 - depth), rtol=1e-3, err_msg=variable.path
        )


@pytest.mark.skipif(ops.active_backend() != "native", reason="needs the native ops")
def test_a_step_is_one_operation_for_all_variables(tiny_config):
    variables = BertPretrainer(BertBackbone(tiny_config)).trainable_variables
    optimizer = AdamWeightDecay(0.01, layer_decay=0.5)
    optimizer.build(variables)
    specs = [tf.TensorSpec(variable.shape, tf.float32) for variable in variables]
    step = tf.function(lambda *gradients: optimizer.apply(list(gradients), variables))
    types = [
        operation.type for operation in step.get_concrete_function(*specs).graph.get_operations()
    ]
    assert types.count("BertTf>AdamWeightDecay") == types.count("BertTf>GlobalNorm") == 1
    assert "ResourceApplyAdam" not in types and "L2Loss" not in types


def test_wrong_layer_decay():
    with pytest.raises(UserError, match="layer_decay=1.5"):
        AdamWeightDecay(layer_decay=1.5)


def test_loss_scale_is_for_new_optimizers():
    optimizer = AdamWeightDecay(0.1)
    optimizer.build([keras.Variable(np.zeros(2, np.float32), name="kernel")])
    with pytest.raises(UserError, match="before the first step"):
        optimizer.use_loss_scale()


@pytest.mark.parametrize("kind", [AdamWeightDecay, LAMB])
def test_the_clip_is_of_the_gradient_without_the_loss_scale(kind):
    gradient, steps = tf.constant([30.0, -40.0]), []  # of norm 50
    for scaled in (False, True):
        weight = keras.Variable(np.ones(2, np.float32), name="kernel")
        # An epsilon this large makes the step depend on the length of the gradient.
        optimizer = kind(0.1, clip_norm=1.0, epsilon=1.0, dynamic_loss_scale=scaled)
        optimizer.apply([gradient * (adam_weight_decay.INITIAL_LOSS_SCALE**scaled)], [weight])
        steps.append(weight.numpy())
    np.testing.assert_allclose(steps[1], steps[0], rtol=1e-6)
    assert not np.allclose(steps[0], 1.0, atol=1e-3)


def test_the_loss_scale_doubles_after_some_good_steps(monkeypatch):
    monkeypatch.setattr(adam_weight_decay, "LOSS_SCALE_GROWTH_STEPS", 2)
    weight = keras.Variable(np.zeros(2, np.float32), name="kernel")
    optimizer, scales = AdamWeightDecay(0.1, dynamic_loss_scale=True), []
    for gradient in (1.0, np.inf, 1.0, 1.0, 1.0):  # of the scaled loss
        optimizer.apply([tf.fill([2], tf.constant(gradient, tf.float32))], [weight])
        scales.append(float(optimizer.loss_scale) / adam_weight_decay.INITIAL_LOSS_SCALE)
    assert scales == [1.0, 0.5, 0.5, 1.0, 1.0]
    assert int(optimizer.iterations) == 4


def test_the_loss_scale_counts_updates_and_not_the_gradients_of_one(monkeypatch):
    monkeypatch.setattr(adam_weight_decay, "LOSS_SCALE_GROWTH_STEPS", 2)
    weight = keras.Variable(np.zeros(2, np.float32), name="kernel")
    options = {"dynamic_loss_scale": True, "gradient_accumulation_steps": 2}
    optimizer, scales = AdamWeightDecay(0.1, **options), []
    for _ in range(4):
        optimizer.apply([tf.ones([2])], [weight])
        scales.append(float(optimizer.loss_scale) / adam_weight_decay.INITIAL_LOSS_SCALE)
    assert scales == [1.0, 1.0, 1.0, 2.0]


@pytest.mark.parametrize("optimizer", [AdamWeightDecay, LAMB])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_weights_are_float32_ones_rounded(optimizer, dtype):
    """Also where a single update is less than half a unit in the last place of the weight."""
    rng = np.random.default_rng(0)
    values = 1.0 + np.arange(6).reshape(2, 3) / 8  # exact in both
    exact, rounded = (keras.Variable(values, dtype=d, name="kernel") for d in ("float32", dtype))
    optimizers = [optimizer(1e-3, clip_norm=None) for _ in range(2)]
    for _ in range(8):
        gradient = (1.0 + rng.uniform(size=(2, 3))).astype(np.float32)
        gradient = tf.cast(tf.cast(gradient, dtype), tf.float32)
        optimizers[0].apply([gradient], [exact])
        optimizers[1].apply([tf.cast(gradient, dtype)], [rounded])
    assert (exact.numpy() != values).all()
    np.testing.assert_array_equal(rounded.numpy(), exact.numpy().astype(rounded.numpy().dtype))
    assert {v.dtype for v in optimizers[1].variables[2:]} == {"float32"}


def test_small_gradients_of_a_bfloat16_weight():
    """In bfloat16 beta_2 would be 1, v would stay 0, and the steps would be much too long."""
    weight = keras.Variable(np.ones(4), dtype="bfloat16", name="kernel")
    optimizer, original = AdamWeightDecay(1e-2), OriginalAdam()
    gradient = tf.constant([1e-4, 1e-2, 1.0, 0.0], tf.bfloat16)
    expected = {"kernel": np.ones(4)}
    for _ in range(3):
        optimizer.apply([gradient], [weight])
        original.apply(expected, {"kernel": tf.cast(gradient, tf.float64).numpy()}, 1e-2)
    # The weight is rounded once: by half of bfloat16's spacing below 1, 2**-8.
    received = weight.numpy().astype(np.float64)
    np.testing.assert_allclose(received, expected["kernel"], rtol=0, atol=2**-9 + 1e-5)


def test_a_low_precision_weight_that_is_assigned_counts():
    weight = keras.Variable(np.ones(2), dtype="bfloat16", name="kernel")
    optimizer = AdamWeightDecay(1e-4)
    optimizer.apply([tf.ones(2, tf.bfloat16)], [weight])
    weight.assign([1.0, 4.0])
    optimizer.apply([tf.ones(2, tf.bfloat16)], [weight])
    assert weight.numpy().astype(np.float32)[1] == 4.0
