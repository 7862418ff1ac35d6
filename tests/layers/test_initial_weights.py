"""Initial weights are random, each with numbers of its own."""

import itertools

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertConfig
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.layers.vector_projection import VectorProjection

SIZES = dict(
    vocab_size=40, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
)


def assert_random(variables):
    """Fails if two matrices begin with the same numbers."""
    matrices = [variable for variable in variables if len(variable.shape) > 1]
    beginnings = [variable.numpy().ravel()[:8] for variable in matrices]
    assert len(beginnings) > 2
    for one, other in itertools.combinations(beginnings, 2):
        assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"embedding_size": 8, "shared_blocks": True, "model_type": "albert"},
        {"relative_attention_num_buckets": 32, "model_type": "mpnet"},
    ],
    ids=lambda options: options.get("model_type", "bert"),
)
def test_of_a_backbone(options):
    assert_random(BertBackbone(BertConfig(**{**SIZES, **options})).trainable_variables)


def test_of_a_projection():
    dense = {"type": "dense", "units": 16, "activation": "linear"}
    projection = VectorProjection([dense, {**dense, "units": 8, "use_residual": True}, dense])
    projection.build([None, 16])
    assert_random(projection.trainable_variables)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_numbers_of_a_seed_are_those_of_keras(dtype):
    def draw(make):
        keras.utils.set_random_seed(5)
        values = (make(stddev=0.02)(shape, dtype) for shape in ([7, 3], (2, 4)))
        return [value.numpy() for value in values]

    for own, keras_own in zip(draw(truncated_normal), draw(keras.initializers.TruncatedNormal)):
        np.testing.assert_array_equal(own, keras_own)
