"""Layers between sentences, compared with NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.ops.native import static_shapes
from bert_tf.tasks.extractive_summarization.model import sentence_starts
from bert_tf.tasks.extractive_summarization.preprocessor import ExtractiveSummarizationModule
from bert_tf.training.optimizers.adam_weight_decay import layer_multipliers
from tests.conformance.task import make
from tests.numpy_bert import NumpyBert
from tests.tasks.extractive_summarization.conformance import CLS, FEATURES, TASKS

STARTS = FEATURES["token_ids"] == CLS


@pytest.fixture(scope="module")
def model():
    return make(TASKS["summarization with sentence layers"])


def sinusoids(count, width):
    """Position by position and pair of columns by pair, as the paper writes them."""
    table = np.zeros([count, width])
    for position in range(count):
        for pair in range(width // 2):
            angle = position / 10000 ** (2 * pair / width)
            table[position, 2 * pair : 2 * pair + 2] = np.sin(angle), np.cos(angle)
    return table


@pytest.fixture(scope="module")
def expected(model, tmp_path_factory):
    """The logits of the sentences of each window in float64, from a file of the model."""
    directory = tmp_path_factory.mktemp("model")
    model.save_pretrained(directory)
    bert = NumpyBert(directory)
    logits = []
    for states, starts in zip(bert(**FEATURES)[0], STARTS):
        x = states[starts]  # [sentences, H]
        x = (x + sinusoids(*x.shape))[np.newaxis]
        everything = np.ones([1, 1, x.shape[1]], bool)
        for index in range(2):
            x, _ = bert.block(x, everything, f"sentence_layers.{index}")
        logits.append(bert.dense(x[0], "sentence_scorer")[:, 0])
    return np.concatenate(logits)


@pytest.mark.parametrize("padding_free", [True, False])
def test_logits_are_those_of_numpy(model, expected, padding_free, monkeypatch):
    monkeypatch.setattr(model.backbone, "padding_free", padding_free)
    np.testing.assert_allclose(model(FEATURES).numpy()[STARTS], expected, rtol=1e-4, atol=1e-5)
    with static_shapes():
        logits = model(FEATURES).numpy()[STARTS]
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_gradient_reaches_every_layer(model):
    variables = model.sentence_layers.trainable_variables
    assert len(variables) == 2 * 12
    with tf.GradientTape() as tape:
        loss = model.compute_loss(
            FEATURES, TASKS["extractive summarization"].targets, model(FEATURES)
        )
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        assert np.abs(gradient).max() > 1e-6, variable.path


def test_learning_rates_by_layer_take_them_for_the_top(model):
    paths = [variable.path for variable in model.sentence_layers.trainable_variables]
    top = layer_multipliers([*paths, "encoder/layer_0/kernel"], layer_decay=0.5)
    assert top == [1.0] * len(paths) + [0.5]


def test_windows_of_text_are_rows_of_tokens(model):
    """The second window of a document begins with sentence 0 of that window."""
    document = ["good film.", "the bad film.", "a b c d e.", "e.", "good."]
    windows = [document[:3], document[3:]]  # of 5 + 6 + 8 and 4 + 4 tokens, at most 20
    logits = model.predict([document, *windows], verbose=0)["logits"]
    np.testing.assert_allclose(*np.split(logits, 2), rtol=1e-4, atol=1e-5)
    texts = [" ".join(document), "", "good. bad."]
    served = ExtractiveSummarizationModule(model).of_text(tf.constant(texts))["summary"]
    assert [text.decode() for text in served.numpy()] == model.summarize(texts)


def test_starts_wherever_the_padding_is():
    rows = [[2, 7, 3, 2, 3, 0, 0], [0, 0, 2, 7, 0, 2, 3], [0] * 7, [2, 3, 2, 3, 2, 3, 2]]
    token_ids = tf.constant(rows)
    starts = sentence_starts(token_ids, token_ids > 0)
    np.testing.assert_array_equal(starts, token_ids == 2)


def test_several_windows_in_a_row_are_refused(model):
    features = {**FEATURES, "sequence_ids": np.ones_like(FEATURES["token_ids"])}
    with pytest.raises(UserError, match="must not hold `sequence_ids`"):
        model(features)
