"""Wrong token dictionaries are refused by name, in eager mode and in graphs of unknown shapes."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertMaskedLM, BertTextClassifier
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.token_inputs import one_sequence_per_row, rows_of_examples

IDS = [[2, 5, 6, 3], [2, 7, 3, 0]]


def ints(values):
    return np.array(values, np.int32)


GOOD = {
    "token_ids": ints(IDS),
    "segment_ids": ints([[0, 0, 1, 1]] * 2),
    "padding_mask": ints(IDS) != 0,
    "positions": ints([[0, 1, 2, 3]] * 2),
    "sequence_ids": ints([[1, 1, 2, 2], [1, 1, 1, 0]]),
    "sequence_starts": ints([[0, 2], [0, 0]]),
    "head_mask": np.ones([2, 2, 4], np.float32),
    "word_vectors": np.ones([2, 4, 32], np.float32),
}

WRONG_SHAPES = {
    "segment_ids": ints([[0] * 5] * 2),
    "padding_mask": np.ones([2, 3], bool),
    "positions": ints([[0, 1, 2, 3]]),
    "sequence_ids": ints([[1] * 4] * 3),
    "sequence_starts": ints([[0]]),
    "head_mask": np.ones([1, 2, 4], np.float32),
    "word_vectors": np.ones([2, 3, 32], np.float32),
}

WRONG_VALUES = {
    "token_ids": [64, -1],
    "segment_ids": [2, -1],
    "positions": [40, -1],
    "sequence_starts": [4, -1],
}


@pytest.fixture(scope="module")
def backbone(tiny_config):
    return BertBackbone(tiny_config)


@pytest.fixture(scope="module")
def run(backbone):
    """The backbone as an exported function has it: no shape is known."""
    graphs = {}

    def call(inputs):
        names = tuple(inputs)
        if names not in graphs:
            signature = {
                name: tf.TensorSpec([None] * np.ndim(inputs[name]), tf.as_dtype(inputs[name].dtype))
                for name in names
            }
            graphs[names] = tf.function(backbone, input_signature=[signature])
        return graphs[names]({name: tf.constant(value) for name, value in inputs.items()})

    return call


def with_value(name, value):
    values = GOOD[name].copy()
    values[1, 1] = value
    return {"token_ids": GOOD["token_ids"], name: values}


def test_all_inputs_together(backbone, run):
    expected = backbone(GOOD)["sequence_output"]
    np.testing.assert_allclose(run(GOOD)["sequence_output"], expected, atol=1e-6)
    # A batch without rows, and other integers, are no mistakes.
    empty = {name: value[:0] for name, value in GOOD.items()}
    assert backbone(empty)["sequence_output"].shape == (0, 4, 32)
    assert run(empty)["sequence_output"].shape == (0, 4, 32)
    wide = backbone({"token_ids": np.array(IDS, np.int64)})["pooled_output"]
    np.testing.assert_array_equal(wide, backbone({"token_ids": ints(IDS)})["pooled_output"])


@pytest.mark.parametrize("name", WRONG_SHAPES)
def test_another_shape_than_the_token_ids(backbone, run, name):
    inputs = {"token_ids": GOOD["token_ids"], name: WRONG_SHAPES[name]}
    with pytest.raises(UserError, match=f"`{name}` must"):
        backbone(inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{name}` must"):
        run(inputs)


@pytest.mark.parametrize(
    "name, value", [(name, value) for name, values in WRONG_VALUES.items() for value in values]
)
def test_values_out_of_range(backbone, run, name, value):
    inputs = with_value(name, value)
    with pytest.raises(UserError, match=f"`{name}` must be from 0 to below .*{value}"):
        backbone(inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{name}` must be from 0 to below"):
        run(inputs)


@pytest.mark.parametrize("length", [0, 41])
def test_sequences_without_tokens_or_with_too_many(backbone, run, length):
    inputs = {"token_ids": np.full([1, length], 5, np.int32)}
    with pytest.raises(UserError, match=f"at least one and at most 40 columns.*{length}"):
        backbone(inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at most 40 columns"):
        run(inputs)


@pytest.mark.parametrize(
    "foreign, ours",
    [
        ("attention_mask", "padding_mask"),
        ("token_type_ids", "segment_ids"),
        ("input_ids", "token_ids"),
        ("position_ids", "positions"),
    ],
)
def test_names_of_other_packages(backbone, foreign, ours):
    with pytest.raises(UserError, match=f"`{foreign}` is `{ours}`"):
        backbone({"token_ids": ints(IDS), foreign: ints(IDS)})


@pytest.mark.parametrize(
    "inputs, message",
    [
        ({"token_ids": ints(IDS), "segments": ints(IDS)}, "among token_ids.*Received: segments"),
        ({"segment_ids": ints(IDS)}, "must hold `token_ids`"),
        (ints(IDS), "must be a dictionary"),
        ({"token_ids": np.array(IDS, np.float32)}, "must be integers.*float32"),
        ({"token_ids": ints([2, 3])}, r"must be \[B, T\]"),
    ],
)
def test_what_is_no_token_dictionary(backbone, inputs, message):
    with pytest.raises(UserError, match=message):
        backbone(inputs)


def test_a_task_model_says_the_same_in_predict(backbone):
    model = BertTextClassifier(backbone)
    assert model.predict({"token_ids": ints(IDS)}, verbose=0).shape == (2, 2)
    with pytest.raises(DataError, match="^`token_ids` must be from 0"):
        model.predict(with_value("token_ids", 99), verbose=0)
    with pytest.raises(UserError, match="`attention_mask` is `padding_mask`"):
        model.predict({"token_ids": ints(IDS), "attention_mask": ints(IDS)}, verbose=0)


@pytest.mark.parametrize("position", [4, -1])
def test_masked_positions_do_not_read_another_row(backbone, position):
    model = BertMaskedLM(backbone)
    with pytest.raises(UserError, match="`masked_positions` must be from 0 to below"):
        model({"token_ids": ints(IDS), "masked_positions": ints([[1], [position]])})


def test_sequences_of_examples_become_rows_and_examples_again():
    ids = tf.reshape(tf.range(12), [2, 3, 2])
    tokens = {"token_ids": ids, "head_mask": tf.ones([6, 1, 2]), "is_query": tf.range(2)}
    tokens["word_vectors"] = tf.ones([6, 2, 3])
    rows = one_sequence_per_row(tokens)
    assert {name: list(values.shape) for name, values in rows.items()} == {
        "token_ids": [6, 2],
        "head_mask": [6, 1, 2],
        "is_query": [2],
        "word_vectors": [6, 2, 3],
    }
    examples = rows_of_examples({"token_ids": rows["token_ids"]}, tf.fill([2, 3], "a text"))
    np.testing.assert_array_equal(examples["token_ids"], ids)


def test_no_examples_of_several_sequences():
    tokens = {"token_ids": tf.zeros([0, 4], tf.int32)}
    assert rows_of_examples(tokens, tf.zeros([0, 3], tf.string))["token_ids"].shape == (0, 3, 4)
