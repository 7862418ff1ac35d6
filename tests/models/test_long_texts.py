"""Models on long texts: pooled windows, longer position tables, sparse attention."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertConfig,
    BertQuestionAnswerer,
    BertSentenceEncoder,
    BertTextClassifier,
    BertTokenizer,
)
from bert_tf.adapt import resize_position_embeddings
from bert_tf.errors import ConfigError, UserError
from bert_tf.tasks.question_answering import QuestionWindows

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = [" ".join(LETTERS[start:] + LETTERS) for start in (0, 20, 26)] + ["a", "good film", ""]


@pytest.fixture
def make(tiny_config, tiny_vocabulary):
    def make(model_class, **options):
        keras.utils.set_random_seed(5)
        backbone = BertBackbone(options.pop("config", tiny_config))
        return model_class(
            backbone, tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False), **options
        )

    return make


@pytest.mark.parametrize("pooling", ["mean", pytest.param("max", marks=pytest.mark.full)])
def test_pooled_windows(make, pooling):
    for model, normalize in (
        (make(BertTextClassifier, max_length=12), False),
        (make(BertSentenceEncoder, max_length=12, normalize=True), True),
    ):
        outputs = model.predict(
            TEXTS, window_stride=7, window_pooling=pooling, token_budget=40, verbose=0
        )
        batched = model.predict(
            TEXTS, window_stride=7, window_pooling=pooling, batch_size=2, verbose=0
        )
        np.testing.assert_allclose(batched, outputs, atol=1e-5)
        for text, output in zip(TEXTS, outputs, strict=True):
            letters = text.split()
            starts = [0]
            while starts[-1] + 10 < len(letters):
                starts.append(min(starts[-1] + 7, len(letters) - 10))
            windows = [" ".join(letters[start : start + 10]) for start in starts]
            each = model(tf.constant(windows)).numpy()
            expected = each.mean(axis=0) if pooling == "mean" else each.max(axis=0)
            if normalize:
                expected /= np.linalg.norm(expected)
            np.testing.assert_allclose(output, expected, atol=1e-5)


def test_windows_refuse(make):
    model = make(BertTextClassifier, max_length=12)
    for arguments in (
        {"window_stride": 0},
        {"window_stride": 11},
        {"window_stride": 5, "window_pooling": "first"},
    ):
        with pytest.raises(UserError, match="Received"):
            model.predict(TEXTS, **arguments)
    with pytest.raises(UserError, match="single texts"):
        model.predict((TEXTS, TEXTS), window_stride=5)


def test_extended_positions(make, tiny_config):
    model = make(BertTextClassifier, max_length=12)
    longer = resize_position_embeddings(model, 100, alpha=0.3)
    old = model.backbone.embeddings.position_embeddings.numpy()
    new = longer.backbone.embeddings.position_embeddings.numpy()
    np.testing.assert_array_equal(new[:40], old)
    u = (old - 0.3 * old[0]) / 0.7
    for position in (40, 41, 79, 80, 99):
        i, j = divmod(position, 40)
        np.testing.assert_allclose(new[position], 0.3 * u[i] + 0.7 * u[j], atol=1e-6)
    assert longer.backbone.config.max_position_embeddings == 100
    assert model.backbone.config.max_position_embeddings == 40 and model.max_length == 12
    short = ["good film", "the bad film ."]
    np.testing.assert_array_equal(longer.predict(short, verbose=0), model.predict(short, verbose=0))
    texts = [" ".join(LETTERS * 3)] * 2
    assert longer.tokenize(texts)["token_ids"].shape == (2, 80)
    longer.compile(keras.optimizers.SGD(0.1))
    longer.fit(texts, [0, 1], verbose=0)
    backbone = resize_position_embeddings(BertBackbone(tiny_config), 1600)
    assert backbone({"token_ids": tf.ones([1, 50], tf.int32)})["sequence_output"].shape[1] == 50
    for length, alpha in ((40, 0.4), (1601, 0.4), (50, 0.5), (50, 1.0)):
        with pytest.raises(UserError, match="Received"):
            resize_position_embeddings(model, length, alpha)


def test_answers_and_vectors_of_longer_windows(make):
    """What took several windows takes one, with a longer table."""
    question, context = ["the film"], [" ".join(LETTERS + LETTERS)]
    model = make(BertQuestionAnswerer, max_query_length=4, doc_stride=10)
    longer = resize_position_embeddings(model, 64)
    counts = [
        len(QuestionWindows(m.tokenizer, question, context, **m.window_lengths()))
        for m in (model, longer)
    ]
    assert counts[0] > 1 == counts[1]
    (answer,) = longer.answer(question, context)
    assert context[0][answer.start : answer.end] == answer.text
    encoder = make(BertSentenceEncoder)
    vectors = resize_position_embeddings(encoder, 64).encode(["a b", context[0]])
    np.testing.assert_allclose(vectors[0], encoder.encode("a b"), atol=1e-6)
    assert np.abs(vectors[1] - encoder.encode(context[0])).max() > 1e-3  # sees all of the text


def masked_bert(backbone, token_ids, window, num_global):
    """The backbone's output with attention masked in NumPy: only real tokens, one sequence."""
    from scipy.special import erf

    config, rows = backbone.config, len(token_ids)
    states, _ = backbone.embeddings(
        tf.constant(token_ids), tf.zeros(rows, tf.int32), tf.range(rows)
    )
    states = states.numpy().astype(np.float64)
    place = np.arange(rows)
    sees = np.abs(place[:, None] - place) <= window
    sees |= (place[:, None] < num_global) | (place < num_global)

    def dense(layer, x):
        return x @ layer.kernel.numpy() + layer.bias.numpy()

    def norm(layer, x):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + config.layer_norm_eps)
        return x * layer.gamma.numpy() + layer.beta.numpy()

    for block in backbone.encoder.blocks:
        qkv = dense(block.attention.query_key_value, states)
        q, k, v = qkv.reshape(rows, 3, config.num_attention_heads, -1).transpose(1, 2, 0, 3)
        scores = np.where(sees, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context = (weights @ v).transpose(1, 0, 2).reshape(rows, -1)
        states = norm(block.attention_layer_norm, states + dense(block.attention_output, context))
        wide = dense(block.intermediate, states)
        wide = 0.5 * wide * (1 + erf(wide / np.sqrt(2)))
        states = norm(block.output_layer_norm, states + dense(block.output_dense, wide))
    return states


@pytest.mark.parametrize(("window", "num_global"), [(3, 1), (0, 2), (6, 0), (40, 1)])
def test_sparse_attention(tiny_config, window, num_global):
    random = np.random.default_rng(0)
    token_ids = random.integers(5, 60, [2, 30]).astype(np.int32)
    real = random.random([2, 30]) < 0.8  # holes: a window counts real tokens
    inputs = {"token_ids": tf.constant(token_ids), "padding_mask": tf.constant(real)}
    inputs["positions"] = tf.constant(np.maximum(np.cumsum(real, axis=1) - 1, 0), tf.int32)
    gradients = []
    for padding_free in (True, False):
        keras.utils.set_random_seed(5)
        backbone = BertBackbone(
            tiny_config,
            attention_window=window,
            num_global_tokens=num_global,
            padding_free=padding_free,
        )
        with tf.GradientTape() as tape:
            output = backbone(inputs)["sequence_output"]
            loss = tf.reduce_sum(output * np.arange(32.0, dtype=np.float32))
        variables = backbone.encoder.trainable_variables
        gradients.append(tape.gradient(loss, variables))
        for row in range(2):
            expected = masked_bert(backbone, token_ids[row][real[row]], window, num_global)
            np.testing.assert_allclose(output[row][real[row]], expected, atol=2e-5)
    for packed, padded in zip(*gradients):
        largest = max(1.0, np.abs(padded).max())
        np.testing.assert_allclose(packed, padded, atol=2e-5 * largest)
    # Several sequences in a row: each has its own window and global tokens.
    ids = tf.constant([[1] * 13 + [2] * 17, [1] * 30])
    outputs = []
    for padding_free in (True, False):
        backbone.padding_free = padding_free
        outputs.append(backbone({**inputs, "sequence_ids": ids})["sequence_output"])
    np.testing.assert_allclose(*outputs, atol=2e-5)


def test_sparse_attention_is_saved(tiny_config, tmp_path):
    backbone = BertBackbone(tiny_config, attention_window=4)
    assert backbone.get_config()["attention_window"] == 4
    tokens = {"token_ids": tf.range(5, 35)[tf.newaxis]}
    expected = backbone(tokens)["sequence_output"]
    for format in ("huggingface", "tf1", "bert_tf"):
        backbone.save_pretrained(tmp_path / format, format=format)
        again = BertBackbone.from_pretrained(tmp_path / format)
        assert (again.attention_window, again.num_global_tokens) == (4, 1)
        np.testing.assert_allclose(again(tokens)["sequence_output"], expected, atol=1e-5)
    full = BertBackbone(tiny_config)
    assert "attention_window" not in full.config.to_huggingface()
    with pytest.raises(ConfigError, match="attention_window"):
        BertConfig(attention_window=-1)
