"""BertEmbeddings: words, positions and segments, LayerNorm, the dense layer to another width."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.errors import UserError
from bert_tf.layers import BertEmbeddings
from tests.layers import float64

SIZES = dict(vocab_size=11, hidden_size=12, num_attention_heads=2, max_position_embeddings=7)
KINDS = {
    "bert": {},
    "no segments": {"type_vocab_size": 0},
    "another width": {"embedding_size": 5},
    "positions from 2": {"position_offset": 2},
}
# A word and a segment that come twice, and the last entry of each table.
TOKEN_IDS, SEGMENT_IDS, POSITIONS = [10, 3, 3, 0, 5], [0, 1, 1, 0, 1], [0, 1, 2, 0, 6]


def made(**options):
    layer = BertEmbeddings(BertConfig(**{**SIZES, "hidden_dropout_prob": 0.0, **options}))
    layer.build()
    float64.randomize(layer)
    return layer


def formula(weights, config):
    x = weights["word_embeddings"][TOKEN_IDS]
    x = x + weights["position_embeddings"][np.array(POSITIONS) + config.position_offset]
    if config.type_vocab_size:
        x = x + weights["segment_embeddings"][SEGMENT_IDS]
    x = float64.layer_norm(x, weights["layer_norm/gamma"], weights["layer_norm/beta"])
    if config.embedding_size:
        x = x @ weights["projection/kernel"] + weights["projection/bias"]
    return x


def call(layer, **options):
    ids = [tf.constant(values) for values in (TOKEN_IDS, SEGMENT_IDS, POSITIONS)]
    return layer(*ids, **options)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_rows_and_gradients(options):
    layer = made(**options)
    float64.assert_right(layer, lambda: call(layer)[0], formula, [], config=layer.config)


def test_a_head_that_shares_the_words_adds_its_gradient():
    layer = made()
    with tf.GradientTape() as tape:
        rows, words = call(layer)
        loss = tf.reduce_sum(rows**2) + tf.reduce_sum(words**3)
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.word_embeddings.value))
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(call(layer)[0] ** 2)
    own = tf.convert_to_tensor(tape.gradient(loss, layer.word_embeddings.value))
    np.testing.assert_allclose(words, layer.word_embeddings)
    np.testing.assert_allclose(gradient, own + 3 * words**2, rtol=1e-4, atol=1e-5)


def test_no_tokens():
    none = tf.zeros([0], tf.int32)
    rows, _ = made()(none, none, none)
    assert rows.shape == (0, 12)


def test_word_vectors_replace_the_words():
    layer = made()
    vectors = tf.gather(layer.word_embeddings.value, [1, 2, 3, 4, 5])
    weights = float64.weights_of(layer)
    weights["word_embeddings"][TOKEN_IDS] = 0
    expected = call(layer, word_vectors=tf.gather(layer.word_embeddings.value, TOKEN_IDS))[0]
    np.testing.assert_array_equal(expected, call(layer)[0])
    assert np.abs(call(layer, word_vectors=vectors)[0] - expected).max() > 0.1


def test_dropout_only_in_training():
    layer = made(hidden_dropout_prob=0.5)
    np.testing.assert_array_equal(call(layer)[0], call(layer)[0])
    one, other = call(layer, training=True)[0], call(layer, training=True)[0]
    kept = (one != 0).numpy()
    assert 0.2 < kept.mean() < 0.8 and not np.array_equal(one, other)
    np.testing.assert_allclose(one[kept], 2 * call(layer)[0][kept], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(dtype):
    layer = made()
    mixed = BertEmbeddings(layer.config, dtype=dtype)
    mixed.build()
    mixed.set_weights(layer.get_weights())
    rows, words = call(mixed)
    assert rows.dtype == mixed.compute_dtype and words.dtype == tf.float32
    float64.assert_near(rows, call(layer)[0].numpy(), 2e-2 if "bfloat" in dtype else 2e-3)


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_config_round_trip(options):
    layer = made(**options)
    again = float64.again(layer)  # built, as Keras stores that it is
    again.set_weights(layer.get_weights())
    assert again.get_config() == layer.get_config()
    np.testing.assert_array_equal(call(again)[0], call(layer)[0])


def test_int8_words_are_near_and_refused_twice():
    layer = made()
    before = call(layer)[0].numpy()
    layer.quantize("int8")
    rows, words = call(layer)
    assert words is None and layer.word_embeddings.dtype == "int8"
    float64.assert_near(rows, before, 0.03)
    with pytest.raises(UserError, match="`word_embeddings` must not be quantized yet"):
        layer.quantize("int8")
    with pytest.raises((UserError, ValueError), match="mode"):
        made().quantize("float8")


def test_embeddings_take_the_seed_of_keras():
    keras.utils.set_random_seed(3)
    one = BertEmbeddings(BertConfig(**SIZES))
    one.build()
    keras.utils.set_random_seed(3)
    other = BertEmbeddings(BertConfig(**SIZES))
    other.build()
    for first, second in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(first, second)
