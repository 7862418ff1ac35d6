"""Head importance compared with brute force; the choice of heads."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertQuestionAnswerer,
    BertTextClassifier,
    BertTokenClassifier,
    BertTokenizer,
    ops,
)
from bert_tf.adapt import head_importance, least_important_heads
from bert_tf.errors import ConfigError, UserError
from bert_tf.training import AdamWeightDecay

TEXTS = ["good film", "the bad good film .", "a . b . c", "bad", "the film"]
PROBLEMS = {
    "single_label_classification": np.array([0, 1, 2, 1, 0]),
    "multi_label_classification": np.array(
        [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0]], np.float32
    ),
    "regression": np.array([0.5, -1.0, 2.0, 0.0, 1.5], np.float32),
}
STEP = 0.02  # of the finite differences


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    def make(problem_type="single_label_classification", **options):
        keras.utils.set_random_seed(3)
        model = BertTextClassifier(
            BertBackbone(tiny_config, **options),
            num_classes=1 if problem_type == "regression" else 3,
            problem_type=problem_type,
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
            dtype=options.get("dtype"),
        )
        for variable in model.trainable_variables:  # biases too, and as large as trained ones
            variable.assign_add(keras.random.normal(variable.shape, stddev=0.1))
        model.compile()
        return model

    return make


TARGETS = PROBLEMS["single_label_classification"]


@pytest.fixture(scope="module")
def plain(make):
    """The importance in a model of one label."""
    return head_importance(make(), TEXTS, TARGETS, batch_size=2, normalize=False)


def losses(model, targets):
    """The loss of each text, float64 `[n]`, from the logits."""
    logits = np.asarray(model(model.tokenize(TEXTS)), np.float64)
    if model.problem_type == "regression":
        return (logits[:, 0] - targets) ** 2
    if model.problem_type == "multi_label_classification":
        return np.mean(np.logaddexp(0, logits) - targets * logits, axis=1)
    chosen = logits[np.arange(len(logits)), targets]
    return np.log(np.exp(logits).sum(axis=1)) - chosen


def brute_force(model, targets):
    """E |dL/dg| `[L, N]`, by moving a factor g on the rows that take a head's output."""
    config = model.backbone.config
    size = config.head_size
    importance = np.zeros([config.num_hidden_layers, config.num_attention_heads])
    for block, layer in enumerate(model.backbone.encoder.blocks):
        variable = layer.attention_output.kernel
        kernel = variable.numpy()
        for place, head in enumerate(config.kept_heads(block)):
            sides = []
            for factor in (1 + STEP, 1 - STEP):
                moved = kernel.copy()
                moved[place * size : (place + 1) * size] *= factor
                variable.assign(moved)
                sides.append(losses(model, targets))
            importance[block, head] = np.mean(np.abs(sides[0] - sides[1])) / (2 * STEP)
        variable.assign(kernel)
    return importance


def test_equals_brute_force(make, plain):
    expected = brute_force(make(), TARGETS)
    assert plain.dtype == np.float64 and expected.min() > 1e-3
    np.testing.assert_allclose(plain, expected, rtol=0.02)


@pytest.mark.full
@pytest.mark.parametrize("problem_type", ["multi_label_classification", "regression"])
def test_equals_brute_force_for_other_problems(make, problem_type):
    model, targets = make(problem_type, padding_free=False), PROBLEMS[problem_type]
    importance = head_importance(model, TEXTS, targets, batch_size=2, normalize=False)
    np.testing.assert_allclose(importance, brute_force(model, targets), rtol=0.02)


def test_normalized_by_block(make, plain):
    importance = head_importance(make(), TEXTS, TARGETS)
    np.testing.assert_allclose(np.linalg.norm(importance, axis=1), 1.0)
    np.testing.assert_allclose(
        importance, plain / np.linalg.norm(plain, axis=1, keepdims=True), rtol=1e-4
    )
    with ops.backend("reference"):
        np.testing.assert_allclose(head_importance(make(), TEXTS, TARGETS), importance, rtol=1e-4)


@pytest.mark.parametrize("padding_free", [True, pytest.param(False, marks=pytest.mark.full)])
def test_padding_does_not_count(make, plain, padding_free):
    model = make(padding_free=padding_free)
    tokens = model.tokenize(TEXTS)
    wide = {
        "token_ids": tf.pad(tokens["token_ids"], [[0, 0], [0, 20]], constant_values=7),
        "segment_ids": tf.pad(tokens["segment_ids"], [[0, 0], [0, 20]]),
        "padding_mask": tf.pad(tokens["padding_mask"], [[0, 0], [0, 20]]),
    }
    found = head_importance(model, wide, TARGETS, normalize=False)
    np.testing.assert_allclose(found, plain, rtol=1e-4)


def test_a_pruned_model(make):
    model, targets = make(), TARGETS
    model.prune_heads({0: [1, 3], 1: [0]})
    importance = head_importance(model, TEXTS, targets, normalize=False)
    assert (importance[0, [1, 3]] == 0).all() and importance[1, 0] == 0
    np.testing.assert_allclose(importance, brute_force(model, targets), rtol=0.02)


@pytest.mark.usefixtures("eager_steps")
def test_nothing_of_the_model_changes(make):
    model, targets = make(), TARGETS
    model.compile(AdamWeightDecay(1e-3))
    model.fit(TEXTS, targets, verbose=0)
    before = [variable.numpy() for variable in model.variables]
    head_importance(model, TEXTS, targets)
    for variable, values in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, values)


@pytest.mark.parametrize(
    "dtype", [pytest.param("mixed_bfloat16", marks=pytest.mark.full), "mixed_float16"]
)
def test_mixed_precision(make, plain, dtype):
    importance = head_importance(make(dtype=dtype), TEXTS, TARGETS, normalize=False)
    np.testing.assert_allclose(importance, plain, rtol=0.1)


@pytest.mark.full
def test_sparse_attention_and_recompute(make):
    model = make(attention_window=1, gradient_checkpointing=True)
    importance = head_importance(model, TEXTS, TARGETS, normalize=False)
    np.testing.assert_allclose(importance, brute_force(model, TARGETS), rtol=0.02)


@pytest.mark.full
def test_other_tasks(tiny_config):
    """Tokens and answers on token dictionaries: an example's loss is what it adds to the sum."""
    config = dataclasses.replace(tiny_config, num_hidden_layers=1)
    tokens = {"token_ids": np.array([[2, 8, 9, 3], [2, 5, 3, 0]])}
    for model, targets in (
        (
            BertTokenClassifier(BertBackbone(config), labels=["O", "B-X"]),
            np.array([[-100, 1, 0, -100], [-100, 1, -100, -100]]),
        ),
        (BertQuestionAnswerer(BertBackbone(config)), np.array([[1, 2], [0, 0]])),
    ):
        model.compile()
        importance = head_importance(model, tokens, targets, batch_size=1, normalize=False)
        together = head_importance(model, tokens, targets, batch_size=2, normalize=False)
        np.testing.assert_allclose(importance, together, rtol=1e-4)
        assert importance.shape == (1, 4) and (importance > 0).all()


def test_what_cannot_be_measured(make):
    targets = TARGETS
    model = make()
    for inputs, labels, words in (
        (TEXTS, targets[:3], "5 examples, labels of shape [3]"),
        ([], [], "0 examples"),
        (TEXTS, ["a"] * 5, "`targets` must be numbers"),
        (TEXTS, [["a"], ["a", "b"], [], [], []], "`targets` must be numbers"),
        ({"token_ids": np.zeros([5, 2, 4], int)}, targets, "[5, 2, 4]"),
        ({"ids": np.zeros([5, 4], int)}, targets, "token_ids of shape []"),
    ):
        with pytest.raises(UserError) as error:
            head_importance(model, inputs, labels)
        assert words in str(error.value)
    fresh = BertTextClassifier(make().backbone)
    with pytest.raises(UserError, match="`model` must be compiled"):
        head_importance(fresh, {"token_ids": np.ones([5, 4], int)}, targets)
    model.quantize("int8")
    with pytest.raises(UserError, match="must not be quantized"):
        head_importance(model, TEXTS, targets)


IMPORTANCE = np.array([[0.9, 0.1, 0.2, 0.05], [0.3, 0.8, 0.7, 0.6]])


def test_least_important_heads():
    assert least_important_heads(IMPORTANCE, count=0) == {}
    assert least_important_heads(IMPORTANCE, count=4) == {0: [1, 2, 3], 1: [0]}
    # The first block's last head stays, however little it counts.
    low = IMPORTANCE * [[0.01], [1.0]]
    assert least_important_heads(low, count=5) == {0: [1, 2, 3], 1: [0, 3]}
    assert least_important_heads(low, share=0.7) == least_important_heads(low, count=6)
    assert least_important_heads(low, count=6) == {0: [1, 2, 3], 1: [0, 2, 3]}
    pruned = {0: (1, 3)}
    assert least_important_heads(IMPORTANCE, count=4, pruned_heads=pruned) == {0: [2], 1: [0]}
    assert least_important_heads(IMPORTANCE, share=0.25, pruned_heads=pruned) == {}


def test_what_cannot_be_chosen():
    for arguments, words in (
        ({}, "one of `count` and `share`"),
        ({"count": 1, "share": 0.1}, "one of `count` and `share`"),
        ({"count": 7}, "at most 6 of 8"),
        ({"share": 0.9}, "at most 6 of 8"),
        ({"count": -1}, "at most 6 of 8"),
        ({"count": 1, "pruned_heads": {0: [1, 2]}}, "pruned already"),
    ):
        with pytest.raises(UserError, match=words):
            least_important_heads(IMPORTANCE, **arguments)
    with pytest.raises(ConfigError, match="blocks in"):
        least_important_heads(IMPORTANCE, count=1, pruned_heads={2: [0]})
    for bad in (IMPORTANCE[0], np.full([2, 4], np.nan), np.zeros([0, 4])):
        with pytest.raises(UserError, match="finite"):
            least_important_heads(bad, count=1)
