"""BertBackbone: real weights against float64, padding at any place, saving and opening."""

import dataclasses
import functools
import gc
import json
import weakref

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, ops
from bert_tf.errors import UserError
from tests.numpy_bert import NumpyBert, error_bound

SENTENCES = [
    "A quiet, beautifully acted film that stays with you for days.",
    "No.",
    "The jokes fall flat and the ending makes no sense; still, the cast is having fun, and so, "
    "against all odds, will most people who wander into the theatre on a rainy afternoon.",
]


@pytest.fixture(scope="module")
def backbone(minilm):
    return BertBackbone.from_pretrained(minilm)


@pytest.fixture(scope="module")
def references(minilm):
    return NumpyBert(minilm), NumpyBert(minilm, np.float32)


@pytest.fixture(scope="module")
def real_batches(minilm, references):
    """(lengths, side) -> a batch and what both references make of it, computed once."""

    @functools.cache
    def batch(lengths, side):
        inputs = real_batch(minilm, lengths, side)
        return inputs, *(reference(*inputs) for reference in references)

    return batch


def real_batch(minilm, lengths, side):
    """Ids of real English, cut or repeated to `lengths`, padded on `side`, with holes if asked."""
    from bert_tf import BertTokenizer

    tokenizer = BertTokenizer.from_pretrained(minilm)
    stream = np.concatenate([row.numpy() for row in tokenizer.tokenize(SENTENCES)])
    width = max(lengths)
    token_ids = np.zeros((len(lengths), width), np.int32)
    mask = np.zeros((len(lengths), width), bool)
    for row, length in enumerate(lengths):
        body = np.resize(np.roll(stream, -7 * row), max(length - 2, 0))
        ids = np.concatenate([[101], body, [102]])[:length]
        at = slice(width - length, width) if side == "left" else slice(0, length)
        token_ids[row, at] = ids
        mask[row, at] = True
    if side == "holes":
        mask[:, 2::5] = False
    segments = np.zeros_like(token_ids)
    segments[:, width // 2 :] = 1
    return token_ids, segments, mask


@pytest.mark.parametrize("padding_free", [True, False])
@pytest.mark.parametrize(
    "lengths,side",
    [
        ((7, 33, 18), "right"),
        ((7, 33, 18), "left"),
        ((40, 33, 21), "holes"),
        ((24, 24), "right"),
        ((1, 2, 128), "right"),
        ((512,), "right"),
    ],
)
def test_forward_equals_float64_reference(backbone, real_batches, lengths, side, padding_free):
    (token_ids, segments, mask), exact, plain = real_batches(lengths, side)
    backbone.padding_free = padding_free
    try:
        outputs = backbone(
            {"token_ids": token_ids, "segment_ids": segments, "padding_mask": mask},
            output_hidden_states=True,
        )
    finally:
        backbone.padding_free = "auto"
    received = [outputs["sequence_output"], outputs["pooled_output"], *outputs["hidden_states"]]
    expected = [exact[0], exact[1], *exact[2]]
    yardstick = [plain[0], plain[1], *plain[2]]
    for ours, theirs, float32 in zip(received, expected, yardstick):
        assert np.abs(ours.numpy() - theirs).max() <= error_bound(theirs, float32)
    assert not outputs["sequence_output"].numpy()[~mask].any()


def test_attentions_are_the_references(backbone, references, minilm):
    token_ids, segments, mask = real_batch(minilm, [7, 12], "right")
    outputs = backbone(
        {"token_ids": token_ids, "segment_ids": segments, "padding_mask": mask},
        output_attentions=True,
    )
    assert len(outputs["attentions"]) == 6
    for ours, theirs in zip(outputs["attentions"], references[0](token_ids, segments, mask)[3]):
        real_queries = np.broadcast_to(mask[:, None, :], ours.shape[:3])
        np.testing.assert_allclose(ours.numpy()[real_queries], theirs[real_queries], atol=1e-5)


def test_optional_inputs_default_to_one_segment_and_no_padding_ids(backbone):
    ids = tf.constant([[101, 2307, 2143, 102, 0, 0]])
    given = backbone(
        {"token_ids": ids, "segment_ids": tf.zeros_like(ids), "padding_mask": ids != 0}
    )
    np.testing.assert_array_equal(
        backbone({"token_ids": ids})["sequence_output"], given["sequence_output"]
    )


@pytest.mark.parametrize("padding_free", [True, False])
def test_tokens_that_are_not_attended_to(backbone, references, minilm, padding_free):
    token_ids, segments, mask = real_batch(minilm, [7, 12], "right")
    attended = mask & (np.arange(12) % 3 != 1)  # anywhere
    backbone.padding_free = padding_free
    inputs = {"token_ids": token_ids, "segment_ids": segments, "padding_mask": mask}
    try:
        received = backbone(inputs, attended_mask=attended)["sequence_output"]
    finally:
        backbone.padding_free = "auto"
    attends = np.broadcast_to(attended[:, np.newaxis], [2, 12, 12])
    expected, *_ = references[0](token_ids, segments, mask, attends)
    np.testing.assert_allclose(received, expected, atol=1e-5)


@pytest.mark.parametrize("attended", [None, np.arange(9) % 4 != 1])
def test_gradients_are_equal_packed_and_padded(tiny_config, attended):
    model = BertBackbone(tiny_config)
    token_ids = np.random.default_rng(0).integers(5, 64, (3, 9)).astype(np.int32)
    mask = np.arange(9) < np.array([[9], [4], [6]])
    weights = np.random.default_rng(1).normal(size=(3, 9, 32)).astype(np.float32)
    inputs = {"token_ids": token_ids, "padding_mask": mask}
    if attended is not None:
        attended = mask & attended

    def gradients(padding_free):
        model.padding_free = padding_free
        with tf.GradientTape() as tape:
            outputs = model(inputs, attended_mask=attended)
            loss = tf.reduce_sum(outputs["sequence_output"] * weights) + tf.reduce_sum(
                outputs["pooled_output"]
            )
        return [
            tf.convert_to_tensor(gradient).numpy()
            for gradient in tape.gradient(loss, model.trainable_variables)
        ]

    for packed, padded in zip(gradients(True), gradients(False)):
        np.testing.assert_allclose(packed, padded, atol=1e-5 * max(1, np.abs(padded).max()))


@pytest.mark.parametrize("num_buckets", [0, 8])
def test_one_step_of_adam_is_at_most_the_learning_rate(tiny_config, num_buckets):
    """Also in a step that is not ours: the gradients of tables, read at a row twice, are sums."""
    model = BertBackbone(
        dataclasses.replace(tiny_config, relative_attention_num_buckets=num_buckets or None)
    )
    token_ids = np.random.default_rng(0).integers(5, 64, (3, 9)).astype(np.int32)
    weights = np.random.default_rng(1).normal(size=(3, 9, 32)).astype(np.float32)
    before = [variable.numpy() for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        outputs = model({"token_ids": token_ids})
        loss = tf.reduce_sum(outputs["sequence_output"] * weights)
        loss += tf.reduce_sum(outputs["pooled_output"])
    gradients = tape.gradient(loss, model.trainable_variables)
    keras.optimizers.Adam(0.01).apply(gradients, model.trainable_variables)
    for variable, old in zip(model.trainable_variables, before):
        assert np.abs(variable - old).max() <= 0.01001, variable.path


def test_keras_file_round_trip(tiny_config, tmp_path):
    model = BertBackbone(tiny_config, num_encoder_layers=1)
    inputs = {"token_ids": np.array([[2, 7, 9, 3]], np.int32)}
    model.save(tmp_path / "backbone.keras")
    opened = keras.models.load_model(tmp_path / "backbone.keras")
    assert opened.get_config() == model.get_config()
    np.testing.assert_array_equal(
        opened(inputs)["sequence_output"], model(inputs)["sequence_output"]
    )


def test_stops_after_the_first_blocks(minilm, backbone):
    short = BertBackbone.from_pretrained(minilm, num_encoder_layers=3)
    inputs = {"token_ids": np.array([[101, 2307, 2143, 102]], np.int32)}
    states = backbone(inputs, output_hidden_states=True)["hidden_states"]
    np.testing.assert_allclose(short(inputs)["sequence_output"], states[3], atol=1e-6)


def test_mixed_precision_keeps_the_numbers_near(tiny_config):
    keras.utils.set_random_seed(3)
    model = BertBackbone(tiny_config)
    half = BertBackbone(tiny_config, dtype="mixed_bfloat16")
    half.set_weights(model.get_weights())
    inputs = {"token_ids": np.array([[2, 7, 9, 3, 0]], np.int32)}
    ours = half(inputs)["sequence_output"]
    assert ours.dtype == tf.bfloat16
    np.testing.assert_allclose(
        tf.cast(ours, tf.float32), model(inputs)["sequence_output"], atol=0.1
    )


@pytest.mark.parametrize("padding_free", [True, False])
def test_dropout_acts_in_training_only(tiny_config, padding_free):
    model = BertBackbone(tiny_config, padding_free=padding_free)
    inputs = {"token_ids": np.array([[2, 7, 9, 3]], np.int32)}
    first, second = (model(inputs, training=True)["sequence_output"] for _ in range(2))
    assert np.abs(first - second).max() > 0.01
    np.testing.assert_array_equal(
        model(inputs)["sequence_output"], model(inputs)["sequence_output"]
    )


def test_reference_backend_gives_the_same(tiny_config):
    model = BertBackbone(tiny_config)
    inputs = {"token_ids": np.array([[2, 7, 9, 3, 0, 0], [2, 8, 3, 0, 0, 0]], np.int32)}
    native = model(inputs)["sequence_output"]
    with ops.backend("reference"):
        np.testing.assert_allclose(model(inputs)["sequence_output"], native, atol=1e-5)


@pytest.mark.parametrize(
    "inputs,words",
    [
        (np.ones([1, 4], np.int32), "dictionary"),
        ({"ids": np.ones([1, 4], np.int32)}, "token_ids"),
        ({"token_ids": np.ones([1, 41], np.int32)}, "at most 40"),
        ({"token_ids": np.ones([4], np.int32)}, r"\[B, T\]"),
    ],
)
def test_wrong_inputs_are_refused(tiny_config, inputs, words):
    with pytest.raises(UserError, match=words):
        BertBackbone(tiny_config)(inputs)


@pytest.mark.parametrize(
    "options, words",
    [({"causal": True}, "`causal`"), ({"attention_window": 2}, "`attention_window`")],
)
def test_an_attended_mask_is_for_full_attention(tiny_config, options, words):
    ids = np.ones([1, 4], np.int32)
    with pytest.raises(UserError, match=words):
        BertBackbone(tiny_config, **options)({"token_ids": ids}, attended_mask=ids > 0)


def test_saved_huggingface_directory_is_equal(minilm, backbone, tmp_path):
    from safetensors.numpy import load_file

    backbone.save_pretrained(tmp_path)
    original = load_file(minilm / "model.safetensors")
    written = load_file(tmp_path / "model.safetensors")
    original.pop("embeddings.position_ids")  # a constant, not a weight
    assert set(written) == set(original)
    for name, values in original.items():
        np.testing.assert_array_equal(written[name], values)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["hidden_act"] == "gelu" and config["model_type"] == "bert"


@pytest.mark.parametrize("training", [False, True])
def test_a_model_that_is_gone_leaves_no_graph(tiny_config, training):
    """What keeps a traced graph keeps the model's weights: a server reloads models for months."""

    def traced():
        backbone = BertBackbone(tiny_config)

        @tf.function
        def step(token_ids):
            with tf.GradientTape() as tape:
                outputs = backbone({"token_ids": token_ids}, training=training)
                loss = tf.reduce_sum(outputs["sequence_output"])
            return tape.gradient(loss, backbone.trainable_variables)

        graph = step.get_concrete_function(tf.ones([2, 5], tf.int32)).graph
        return weakref.ref(graph)

    traced()  # what is traced once for all models
    graph = traced()
    gc.collect()
    assert graph() is None
