"""Dense: every form of its kernel computes the same, and one form becomes another."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.families.file_values import ACTIVATION_NAMES
from bert_tf.layers import Dense, ResidualLayerNorm
from bert_tf.layers.kernels import Epilogue
from bert_tf.ops.native import static_shapes
from tests.numpy_bert import ACTIVATIONS

IN, UNITS, ROWS = 24, 40, 5
# What turns a new layer into one with this form of kernel, and how far its results are from x W.
FORMS = {
    "FloatKernel": (lambda dense: None, 1e-5),
    "LoraKernel": (lambda dense: dense.enable_lora(2, lora_alpha=4.0), 1e-5),
    "PrepackedKernel": (lambda dense: dense.pack(), 1e-5),
    "Int8Kernel": (lambda dense: dense.quantize("int8"), 0.05),
}


def made(form, units=UNITS):
    """A layer, its kernel `[in, units]` and its bias."""
    keras.utils.set_random_seed(7)
    dense = Dense(units, initializer_range=0.1)
    dense.build([None, IN])
    dense.bias.assign(keras.random.normal([units]))
    kernel, bias = dense.kernel.numpy(), dense.bias.numpy()
    FORMS[form][0](dense)
    if form == "LoraKernel":
        dense.lora_kernel_b.assign(keras.random.normal([2, units], stddev=0.1))
        kernel += 2.0 * dense.lora_kernel_a.numpy() @ dense.lora_kernel_b.numpy()
    return dense, kernel, bias


def epilogues():
    residual = keras.random.normal([ROWS, UNITS])
    yield Epilogue(), lambda z: z
    for name in sorted(set(ACTIVATION_NAMES.values())):
        yield Epilogue(activation=name), ACTIVATIONS[name]
    for is_rms in (False, True):
        norm = ResidualLayerNorm(dropout_rate=0.5, is_rms=is_rms, use_bias=not is_rms)
        norm.build([None, UNITS])
        norm.gamma.assign(keras.random.normal([UNITS]))
        yield (
            Epilogue(layer_norm=norm, residual=residual),
            lambda z, norm=norm: norm(tf.constant(z), residual=residual),
        )


@pytest.mark.parametrize("form", FORMS)
def test_every_form_computes_every_epilogue(form):
    dense, kernel, bias = made(form)
    assert type(dense.kernel_impl).__name__ == form
    x = keras.random.normal([ROWS, IN])
    z = x.numpy() @ kernel + bias
    np.testing.assert_allclose(dense(x), z, atol=FORMS[form][1])
    for epilogue, function in epilogues():
        np.testing.assert_allclose(dense.apply(x, epilogue), function(z), atol=4 * FORMS[form][1])


@pytest.mark.parametrize("rows", [0, 1, ROWS])
@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16], ids=lambda dtype: dtype.name)
def test_a_biased_product_in_16_bits_under_xla(dtype, rows):
    dense = Dense(UNITS, initializer_range=0.1, dtype=f"mixed_{dtype.name}")
    dense.build([None, IN])
    dense.bias.assign(keras.random.normal([UNITS]))
    x = tf.cast(keras.random.normal([rows, IN]), dtype)
    dy = tf.cast(keras.random.normal([rows, UNITS]), dtype)
    with static_shapes(), tf.GradientTape() as tape:
        tape.watch(x)
        y = dense(x)
    gradients = tape.gradient(y, [x, dense.kernel, dense.bias], output_gradients=dy)
    x64, dy64, kernel, bias = (
        tf.cast(tf.cast(values, dtype), tf.float64).numpy()
        for values in (x, dy, dense.kernel, dense.bias)
    )
    assert y.dtype == dtype
    half_ulp = 2.0**-9 if dtype == tf.bfloat16 else 2.0**-12

    def results(x, dy, kernel, bias):
        return x @ kernel + bias, dy @ kernel.T, x.T @ dy, dy.sum(axis=0)

    numbers = (x64, dy64, kernel, bias)
    sizes = results(*map(np.abs, numbers))  # of the terms
    for found, expected, size in zip([y, *gradients], results(*numbers), sizes, strict=True):
        assert found.shape == expected.shape
        difference = np.abs(tf.cast(found, tf.float64).numpy() - expected)
        assert (difference <= 2 * half_ulp * size).all()


def test_a_product_that_is_not_finite_stays_so_under_xla():
    dense = Dense(2, dtype="mixed_bfloat16")
    dense.build([None, 3])
    dense.kernel.assign(tf.ones([3, 2]))
    x = tf.constant([[1.0, np.nan, 0.0], [np.inf, 0.0, 0.0], [1.0, 1.0, 0.0]], tf.bfloat16)
    with static_shapes():
        y = dense(x)
    found = tf.cast(y, tf.float32)
    np.testing.assert_array_equal(found, [[np.nan] * 2, [np.inf] * 2, [2.0] * 2])


@pytest.mark.parametrize("units", [UNITS, 64], ids=["no panels", "panels"])
@pytest.mark.parametrize("form", FORMS)
def test_a_gate_multiplies_the_halves(form, units):
    dense, kernel, bias = made(form, units)
    x = keras.random.normal([ROWS, IN])
    first, second = np.split(x.numpy() @ kernel + bias, 2, axis=1)
    for name in sorted(set(ACTIVATION_NAMES.values())):
        y = dense.apply(x, Epilogue(activation=name, is_gated=True))
        np.testing.assert_allclose(y, ACTIVATIONS[name](first) * second, atol=4 * FORMS[form][1])


def test_dropout_of_a_float_kernel():
    dense, kernel, bias = made("FloatKernel")
    layer_norm = ResidualLayerNorm(dropout_rate=0.5)
    layer_norm.build([None, UNITS])
    x, key = keras.random.normal([ROWS, IN]), tf.constant(3, tf.int64)
    epilogue = Epilogue(layer_norm=layer_norm, training=True, dropout_seed=key)
    z = tf.constant(x.numpy() @ kernel + bias)
    expected = layer_norm(z, training=True, dropout_seed=key)
    np.testing.assert_allclose(dense.apply(x, epilogue), expected, atol=1e-5)
    assert np.abs(expected - layer_norm(z)).max() > 0.1


@pytest.mark.parametrize("form", list(FORMS)[1:])
def test_only_a_float_kernel_becomes_another(form):
    for change, _ in list(FORMS.values())[1:]:
        dense = made(form)[0]
        with pytest.raises(UserError, match=f"must be a FloatKernel.*kernel_impl={form}"):
            change(dense)
        names = {variable.name for variable in dense.variables}
        assert ("kernel" in names) == (form == "LoraKernel")


def test_the_order_of_the_variables_is_that_of_saved_files():
    names = {form: [variable.name for variable in made(form)[0].weights] for form in FORMS}
    assert names == {
        "FloatKernel": ["kernel", "bias"],
        "LoraKernel": ["kernel", "bias", "lora_kernel_a", "lora_kernel_b"],
        "PrepackedKernel": ["bias", "packed_kernel"],
        "Int8Kernel": [
            "bias",
            "packed_kernel",
            "kernel_scale",
            "kernel_column_sums",
            "input_smoothing",
        ],
    }


def test_merged_lora_leaves_a_plain_layer():
    dense, kernel, _ = made("LoraKernel")
    dense.merge_lora()
    np.testing.assert_allclose(dense.kernel, kernel, atol=1e-6)
    assert [variable.name for variable in dense.variables] == ["kernel", "bias"]
    dense.enable_lora(1)
    dense.merge_lora()
    dense.pack()
