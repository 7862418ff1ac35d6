"""Tests for a run under gpu_emulation.py alone, which test_gpu_emulation.py makes."""

import ctypes
import dataclasses
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTextClassifier, ops
from tests.conftest import REPOSITORY

ROWS = 8


def test_it_is_the_emulation_that_runs():
    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 64 on a GPU"):
        ops.varlen_attention(tf.ones([5, 3, 1, 128]), tf.constant([0, 5]))

    @tf.function(jit_compile=True)
    def compiled(qkv):
        return ops.varlen_attention(qkv, tf.constant([0, 5]))

    with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to 64 on a GPU"):
        compiled(tf.ones([5, 3, 1, 128]))


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
def checker():
    """tools/check_cuda_kernels.py's, on the CPU."""
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    sys.path.insert(0, str(REPOSITORY / "tools"))
    import check_cuda_kernels

    library = ctypes.CDLL(os.environ["BERT_TF_EMULATED_GPU"])
    checker = check_cuda_kernels.Checker(check_cuda_kernels.Kernels(library, torch, "cpu"))
    checker.REPEATS = 2
    return checker


def test_the_checker_for_a_gpu_finds_nothing(checker, capsys):
    for dtype in checker.kernels.types:
        checker.in_place(dtype)
        for approximate in (False, True):
            checker.bias_gelu(33, 257, dtype, approximate)
        checker.layer_norm(37, 77, dtype, 0.1, True, False)
        checker.layer_norm(9, 1088, dtype, 0.0, False, True)
        checker.attention([3, 0, 1, 64, 65], 2, 32, dtype, rate=0.1)
        checker.attention(
            [70, 1], 3, 40, dtype, causal=True, window=5, globals_=2, splits_type="int32"
        )
    assert checker.failures == 0, capsys.readouterr().out
    assert checker.checks > 100


def test_the_checker_for_a_gpu_sees_a_wrong_tail(checker):
    whole = checker.kernels.bias_gelu

    def without_a_tail(x, bias, approximate):
        y = whole(x, bias, approximate)["y"]
        return {"y": y.where(x + bias > -4, 0.2 * y)}

    checker.kernels.bias_gelu = without_a_tail
    checker.bias_gelu(200, 64, checker.torch.float32, False)
    assert checker.failures == 1
