"""Tests for a run under gpu_emulation.py alone, which test_gpu_emulation.py makes."""

import ctypes
import dataclasses
import importlib
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTextClassifier, ops
from tests.ops.test_varlen_attention import check_that_few_places_give_nan

ROWS = 8


def test_it_is_the_emulation_that_runs():
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 64 on a GPU"):
        ops.varlen_attention(tf.ones([5, 3, 1, 128]), tf.constant([0, 5]))

    @tf.function(jit_compile=True)
    def compiled(qkv):
        return ops.varlen_attention(qkv, tf.constant([0, 5]))

    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 64 on a GPU"):
        compiled(tf.ones([5, 3, 1, 128]))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_few_places_give_nan_if_the_mean_length_has_enough(jit_compile):
    check_that_few_places_give_nan("native", jit_compile)


def trained(config, strategy):
    """Losses and weights of three steps of a classifier, whose backbone has no dropout."""
    rng = np.random.default_rng(0)
    x = {
        "token_ids": rng.integers(5, 64, (3 * ROWS, 9)).astype(np.int32),
        "padding_mask": np.arange(9) < rng.integers(1, 10, (3 * ROWS, 1)),
    }
    keras.utils.set_random_seed(0)
    with strategy.scope():
        model = BertTextClassifier(BertBackbone(config), num_classes=2, dropout=0.0)
        model.compile(keras.optimizers.SGD(0.1))
    history = model.fit(x, np.arange(3 * ROWS) % 2, batch_size=ROWS, shuffle=False, verbose=0)
    return history.history["loss"], model.get_weights()


def test_two_mirrored_replicas_train_like_one(tiny_config):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    loss, weights = trained(config, tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]))
    expected_loss, expected = trained(config, tf.distribute.get_strategy())
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    for got, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="needs transformers and PyTorch")


@pytest.fixture
def checks(torch):
    """The checks of benchmarks/cuda_kernels."""
    return importlib.import_module("benchmarks.cuda_kernels.checks")


@pytest.fixture
def checker(checks):
    """The checker of benchmarks/cuda_kernels, on the CPU."""
    library = ctypes.CDLL(os.environ["BERT_TF_EMULATED_GPU"])
    return checks.Checker(checks.Kernels(library, "cpu"), repeats=2)


def test_the_checker_for_a_gpu_finds_nothing(torch, checks, checker, capsys):
    for dtype in checks.TYPES:
        checks.in_place(checker, dtype)
        for approximate in (False, True):
            checks.bias_gelu(checker, 33, 257, dtype, approximate)
        for activation in ("gelu", "gelu_new", "silu"):
            checks.gate(checker, 33, 257, dtype, activation)
        checks.layer_norm(checker, 37, 77, dtype, 0.1, True, False)
        checks.layer_norm(checker, 9, 1088, dtype, 0.0, False, True)
        checks.attention(checker, [3, 0, 1, 64, 65], 2, 32, dtype, rate=0.1)
        options = {"causal": True, "window": 5, "globals_": 2, "splits_type": torch.int32}
        checks.attention(checker, [70, 1], 3, 40, dtype, **options, max_distance=9)
    assert checker.failures == 0, capsys.readouterr().out
    assert checker.checks > 100


def test_the_checker_for_a_gpu_sees_a_wrong_tail(torch, checks, checker):
    whole = checker.kernels.bias_gelu

    def without_a_tail(x, bias, approximate):
        y = whole(x, bias, approximate)["y"]
        return {"y": y.where(x + bias > -4, 0.2 * y)}

    checker.kernels.bias_gelu = without_a_tail
    checks.bias_gelu(checker, 200, 64, torch.float32, False)
    assert checker.failures == 1
