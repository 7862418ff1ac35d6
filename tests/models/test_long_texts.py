"""Models on long texts: pooled windows, longer position tables, sparse attention."""

import dataclasses

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
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.encoder import blocks_of_layers
from bert_tf.ops import native
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


@pytest.mark.usefixtures("eager_steps")
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


@pytest.mark.usefixtures("eager_steps")
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


def window_and_global(window, num_global):
    """Returns a function of a layer and the places of a sequence: who attends to whom."""

    def sees(layer, place):
        is_near = np.abs(place[:, None] - place) <= window
        return is_near | (place[:, None] < num_global) | (place < num_global)

    return sees


def random_blocks(num_random, size, most):
    """The same for BigBird; `most` is the number of blocks of the longest possible sequence."""

    def sees(layer, place):
        count = -(-len(place) // size)
        blocks = np.ones([count, count], bool)
        for i in range(1, count - 1) if count > 5 + 2 * num_random else ():
            order = np.random.RandomState([layer, i]).random_sample(most)
            others = [j for j in range(1, count - 1) if abs(i - j) > 1]
            others = sorted(others, key=lambda j: order[j])[:num_random]
            blocks[i] = False
            blocks[i, [0, i - 1, i, i + 1, count - 1, *others]] = True
        return blocks[place[:, None] // size, place // size]

    return sees


def masked_bert(backbone, token_ids, sees, positions=None):
    """The backbone's output with attention masked in NumPy: only real tokens, one sequence."""
    from scipy.special import erf

    config, rows = backbone.config, len(token_ids)
    positions = tf.range(rows) if positions is None else positions
    states, _ = backbone.embeddings(
        tf.constant(token_ids), tf.zeros(rows, tf.int32), tf.constant(positions)
    )
    states = states.numpy().astype(np.float64)
    place = np.arange(rows)

    def dense(layer, x):
        return x @ layer.kernel.numpy() + layer.bias.numpy()

    def norm(layer, x):
        x = x - x.mean(axis=-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + config.layer_norm_eps)
        return x * layer.gamma.numpy() + layer.beta.numpy()

    for layer, block in enumerate(backbone.encoder.blocks):
        qkv = dense(block.attention.query_key_value, states)
        q, k, v = qkv.reshape(rows, 3, config.num_attention_heads, -1).transpose(1, 2, 0, 3)
        scores = np.where(
            sees(layer, place), q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), -np.inf
        )
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        context = (weights @ v).transpose(1, 0, 2).reshape(rows, -1)
        states = norm(block.attention_layer_norm, states + dense(block.attention_output, context))
        wide = dense(block.intermediate, states)
        wide = 0.5 * wide * (1 + erf(wide / np.sqrt(2)))
        states = norm(block.output_layer_norm, states + dense(block.output_dense, wide))
    return states


def sparse(window, num_global):
    fields = {"attention_window": window, "num_global_tokens": num_global}
    return pytest.param(fields, window_and_global(window, num_global), id=f"{window} {num_global}")


def of_big_bird(num_random, size):
    fields = {"num_random_blocks": num_random, "attention_block_size": size}
    sees = random_blocks(num_random, size, most=-(-40 // size))
    return pytest.param(fields, sees, id=f"{num_random} random of {size}")


@pytest.mark.parametrize(
    ("fields", "sees"),
    [
        *(sparse(*one) for one in ((3, 1), (0, 2), (6, 0), (40, 1))),
        *(of_big_bird(*one) for one in ((1, 2), (3, 2), (0, 3), (2, 1), (50, 1))),
    ],
)
def test_sparse_attention(tiny_config, fields, sees):
    random = np.random.default_rng(0)
    token_ids = random.integers(5, 60, [2, 30]).astype(np.int32)
    real = random.random([2, 30]) < 0.8  # holes: a window counts real tokens
    inputs = {"token_ids": tf.constant(token_ids), "padding_mask": tf.constant(real)}
    inputs["positions"] = tf.constant(np.maximum(np.cumsum(real, axis=1) - 1, 0), tf.int32)
    gradients = []
    for padding_free in (True, False):
        keras.utils.set_random_seed(5)
        backbone = BertBackbone(
            dataclasses.replace(tiny_config, **fields), padding_free=padding_free
        )
        with tf.GradientTape() as tape:
            output = backbone(inputs)["sequence_output"]
            loss = tf.reduce_sum(output * np.arange(32.0, dtype=np.float32))
        variables = backbone.encoder.trainable_variables
        gradients.append(tape.gradient(loss, variables))
        for row in range(2):
            expected = masked_bert(backbone, token_ids[row][real[row]], sees)
            np.testing.assert_allclose(output[row][real[row]], expected, atol=2e-5)
    for packed, padded in zip(*gradients):
        largest = max(1.0, np.abs(padded).max())
        np.testing.assert_allclose(packed, padded, atol=2e-5 * largest)
    # Several sequences in a row: each has its own window, blocks and global tokens.
    ids = tf.constant([[1] * 13 + [2] * 17, [1] * 30])
    outputs = []
    if "num_random_blocks" in fields:
        with pytest.raises(UserError, match="`num_random_blocks` must be None with `sequence_ids`"):
            backbone({**inputs, "sequence_ids": ids})
        backbone.padding_free = True
        output = backbone({**inputs, "sequence_ids": ids})["sequence_output"]
        in_second = real[0] & (ids[0].numpy() == 2)
        places = inputs["positions"].numpy()[0][in_second]
        expected = masked_bert(backbone, token_ids[0][in_second], sees, places)
        np.testing.assert_allclose(output[0][in_second], expected, atol=2e-5)
        return
    for padding_free in (True, False):
        backbone.padding_free = padding_free
        outputs.append(backbone({**inputs, "sequence_ids": ids})["sequence_output"])
    np.testing.assert_allclose(*outputs, atol=2e-5)


@pytest.mark.parametrize("options", [{"attention_window": 4}, {"num_random_blocks": 2}], ids=str)
def test_sparse_attention_is_saved(tiny_config, options, tmp_path):
    backbone = BertBackbone(dataclasses.replace(tiny_config, attention_block_size=2), **options)
    assert backbone.get_config().items() >= options.items()
    tokens = {"token_ids": tf.range(5, 35)[tf.newaxis]}
    expected = backbone(tokens)["sequence_output"]
    for format in ("huggingface", "tf1", "bert_tf"):
        backbone.save_pretrained(tmp_path / format, format=format)
        again = BertBackbone.from_pretrained(tmp_path / format)
        assert again.config.attention_block_size == 2
        assert again.get_config().items() >= options.items()
        np.testing.assert_allclose(again(tokens)["sequence_output"], expected, atol=1e-5)
    full = BertBackbone(tiny_config)
    assert not {"attention_window", "num_random_blocks"} & full.config.to_huggingface().keys()
    with pytest.raises(ConfigError, match="attention_window"):
        BertConfig(attention_window=-1)


def test_random_blocks_are_drawn_for_each_layer_and_for_all_lengths(tiny_config):
    """A longer text or position table, or a neighbour in the batch, changes no block."""
    config = dataclasses.replace(tiny_config, num_random_blocks=2, attention_block_size=1)
    longer = dataclasses.replace(config, max_position_embeddings=400)
    mask = np.arange(30) < np.array([[30], [12], [9]])
    first, second = blocks_of_layers(config, TokenLayout.packed(tf.constant(mask)))
    again, _ = blocks_of_layers(longer, TokenLayout.padded(tf.constant(mask)))
    alone, _ = blocks_of_layers(config, TokenLayout.packed(tf.constant(mask[1:2, :12])))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[1, :12, :12], alone[0])
    assert first[2].numpy()[:9, :9].all()  # at most 5 + 2 * 2 blocks
    counts = first[0].numpy().sum(axis=1)
    assert counts.tolist() == [30, 6, *[7] * 26, 6, 30]
    assert (first[0] != second[0]).numpy().any()


@pytest.mark.parametrize(
    "fields",
    [
        {"attention_window": 4},
        {"causal": True},
        {"position_embedding_type": "alibi"},
        {"position_embedding_type": "disentangled"},
        {"relative_attention_num_buckets": 32},
        {"num_random_blocks": -1},
        {"attention_block_size": 0},
    ],
    ids=str,
)
def test_random_blocks_refuse(tiny_config, fields):
    with pytest.raises(ConfigError, match="must be .*Received"):
        dataclasses.replace(tiny_config, **{"num_random_blocks": 1, **fields})


def test_random_blocks_in_every_use(make, tiny_config, tmp_path):
    """Trained, with recomputed blocks, saved, exported, in 8 bits, compiled by XLA."""
    config = dataclasses.replace(tiny_config, num_random_blocks=1, attention_block_size=2)
    model = make(BertTextClassifier, config=config, max_length=40)
    full = make(BertTextClassifier, max_length=40)
    assert np.abs(model.predict(TEXTS[:2]) - full.predict(TEXTS[:2])).max() > 1e-4
    np.testing.assert_allclose(model.predict(TEXTS[3:]), full.predict(TEXTS[3:]), atol=1e-6)
    model.compile(keras.optimizers.SGD(0.1))
    model.fit(TEXTS, [0, 1, 0, 1, 0, 1], verbose=0)
    expected = model.predict(TEXTS)
    model.save(tmp_path / "model.keras")
    model.save_pretrained(tmp_path / "saved")
    for path in (tmp_path / "model.keras", tmp_path / "saved"):
        np.testing.assert_array_equal(
            BertTextClassifier.from_pretrained(path).predict(TEXTS), expected
        )
    served = tf.saved_model.load(model.export(tmp_path / "served")).signatures["serving_default"]
    logits = served(text=tf.constant(TEXTS))["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    gradients = []
    for checkpointing in (False, True):
        backbone = BertBackbone(config, gradient_checkpointing=checkpointing)
        backbone.set_weights(model.backbone.get_weights())
        with tf.GradientTape() as tape:
            output = backbone({"token_ids": tf.range(5, 35)[tf.newaxis]}, training=False)
            loss = tf.reduce_sum(output["sequence_output"][..., 0] ** 2)
        gradients.append(tape.gradient(loss, backbone.encoder.trainable_variables))
    for one, other in zip(*gradients):
        np.testing.assert_allclose(one, other, atol=1e-5)
    tokens = {"token_ids": tf.range(5, 35)[tf.newaxis]}
    with native.static_shapes():
        compiled = tf.function(lambda x: backbone(x)["sequence_output"], jit_compile=True)
        np.testing.assert_allclose(compiled(tokens), output["sequence_output"], atol=1e-5)
    model.quantize("int8")
    assert 0 < np.abs(model.predict(TEXTS) - expected).max() < 0.2
