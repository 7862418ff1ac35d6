"""AdamWeightDecay against the original's formula in float64."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay, WarmupLinearDecay
from tests.numpy_bert import error_bound
from tests.training.optimizers.original_adam import OriginalAdam


def random_values(rng, scale=1.0):
    """float32 arrays of three variables, of which `kernel` alone is decayed."""
    names = ("kernel", "bias", "gamma")
    return {name: (scale * rng.normal(size=(5, 3))).astype(np.float32) for name in names}


def variables_of(values):
    return [keras.Variable(value, name=name) for name, value in values.items()]


def in_float64(values):
    return {name: value.astype(np.float64) for name, value in values.items()}


def assert_near(variables, expected, in_float32):
    for variable, exact, rounded in zip(
        variables, expected.values(), in_float32.values(), strict=True
    ):
        bound = error_bound(exact, rounded)
        np.testing.assert_allclose(variable.numpy(), exact, rtol=0, atol=bound)


@pytest.mark.parametrize("bias_correction", [False, True])
@pytest.mark.parametrize("scale", [0.01, 10.0])  # below and above the clip
def test_follows_the_original(bias_correction, scale):
    rng = np.random.default_rng(0)
    rounded = random_values(rng)
    exact, variables = in_float64(rounded), variables_of(rounded)
    schedule = WarmupLinearDecay(0.1, num_train_steps=20, num_warmup_steps=5)
    optimizer = AdamWeightDecay(schedule, bias_correction=bias_correction)
    original, plain = (OriginalAdam(bias_correction) for _ in range(2))
    for step in range(20):
        gradients = random_values(rng, scale)
        rate = 0.1 * step / 5 if step < 5 else 0.1 * (1 - step / 20)
        original.apply(exact, in_float64(gradients), rate)
        plain.apply(rounded, gradients, rate)
        optimizer.apply([tf.constant(g) for g in gradients.values()], variables)
    assert_near(variables, exact, rounded)


@pytest.mark.parametrize("dynamic", [False, True])
def test_l2_is_a_term_of_the_loss(dynamic):
    """The steps on loss + l2 / 2 * sum of squares of the kernel, in float64; others have none."""
    rng = np.random.default_rng(0)
    rounded = random_values(rng)
    exact, variables = in_float64(rounded), variables_of(rounded)
    optimizer = AdamWeightDecay(0.02, l2_regularization=0.3, dynamic_loss_scale=dynamic)
    optimizer.build(variables)
    original, plain = OriginalAdam(), OriginalAdam()
    for _ in range(20):
        gradients = random_values(rng)
        optimizer.apply(
            [optimizer.scale_loss(tf.constant(g)) for g in gradients.values()], variables
        )
        for adam, values, own in (
            (original, exact, in_float64(gradients)),
            (plain, rounded, gradients),
        ):
            own["kernel"] += 0.3 * values["kernel"]
            adam.apply(values, own, 0.02)
    assert_near(variables, exact, rounded)


def test_l2_of_a_model():
    """It equals Keras's own regularizers of the kernels, which the loss of a classifier has."""
    tokens = {"token_ids": np.arange(1, 13, dtype=np.int32).reshape(3, 4)}
    weights = []
    for as_option in (True, False):
        keras.utils.set_random_seed(1)
        config = bert_tf.BertConfig(
            vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        )  # fmt: skip
        model = bert_tf.BertTextClassifier(bert_tf.BertBackbone(config), num_classes=2)
        if not as_option:
            for weight in model.trainable_weights:
                if weight.path.split("/")[-1] not in ("gamma", "beta", "bias"):
                    weight.regularizer = keras.regularizers.L2(0.05)  # half of 0.1
        # With so large an epsilon a step is linear in the gradient, and a rounding error stays one.
        l2 = 0.1 if as_option else 0.0
        optimizer = AdamWeightDecay(10.0, epsilon=1.0, l2_regularization=l2)
        model.compile(optimizer, gradient_accumulation_steps=3 if as_option else 1)
        for _ in range(3):
            model.train_on_batch(tokens, np.array([0, 1, 1]))
        weights.append(model.get_weights())
    for mine, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, atol=1e-6)


def test_l2_under_a_strategy():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope():
        variable = keras.Variable(np.full(3, 2.0, np.float32), name="kernel")
        optimizer = AdamWeightDecay(0.1, l2_regularization=0.25, clip_norm=None)
        optimizer.build([variable])
    strategy.run(lambda: optimizer.apply([tf.constant([3.0, 4.0, 0.0])], [variable]))
    np.testing.assert_allclose(optimizer._means[0].numpy(), [0.35, 0.45, 0.05], rtol=1e-6)


def test_rows_of_an_embedding_are_summed_before_the_clip():
    table = keras.Variable(np.zeros((4, 2), np.float32), name="embeddings")
    repeated = tf.IndexedSlices(tf.ones([2, 2]), tf.constant([1, 1]), tf.constant([4, 2]))
    dense = tf.constant([[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [0.0, 0.0]])
    results = []
    for gradient in (repeated, dense):
        table.assign(np.zeros((4, 2)))
        # An epsilon this large makes the step depend on the length of the gradient.
        AdamWeightDecay(0.1, epsilon=1.0).apply([gradient], [table])
        results.append(table.numpy())
    np.testing.assert_array_equal(*results)


def test_config_round_trip():
    optimizer = AdamWeightDecay(WarmupLinearDecay(1e-3, 10, 2), clip_norm=None, epsilon=1e-8)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
    again = AdamWeightDecay.from_config(AdamWeightDecay(l2_regularization=0.1).get_config())
    assert again.l2_regularization == 0.1
    again = AdamWeightDecay.from_config(AdamWeightDecay(all_reduce_dtype="bfloat16").get_config())
    assert again.all_reduce_dtype == "bfloat16"
    with pytest.raises(UserError, match="`l2_regularization` must be at least 0"):
        AdamWeightDecay(l2_regularization=-0.1)


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("all_reduce_dtype", "float16", 'must be "bfloat16", "float32" or None'),
        ("all_reduce_bytes_per_pack", -1, "must be an integer of at least 0"),
        ("all_reduce_bytes_per_pack", 2.5, "must be an integer of at least 0"),
    ],
)
def test_how_gradients_are_sent_is_checked(name, value, rule):
    with pytest.raises(UserError, match=f"`{name}` {rule}"):
        AdamWeightDecay(**{name: value})


def test_one_replica_rounds_nothing():
    variable = keras.Variable(np.zeros(1, np.float32), name="kernel")
    optimizer = AdamWeightDecay(0.1, clip_norm=None, all_reduce_dtype="bfloat16")
    optimizer.apply([tf.constant([1.0 + 2.0**-20])], [variable])
    assert optimizer.gradient_norm.numpy() == np.float32(1.0 + 2.0**-20)
