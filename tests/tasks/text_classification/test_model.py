"""BertTextClassifier: text in, all poolings, learning, saving."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import DataError, UserError
from bert_tf.training import AdamWeightDecay, ThresholdSweep, all_scores

TEXTS = ["good film", "bad film", "the good.", "the bad."] * 8
LABELS = np.array([1, 0, 1, 0] * 8)


@pytest.fixture(scope="module")
def one_block(tiny_config):
    return dataclasses.replace(tiny_config, num_hidden_layers=1)


@pytest.fixture(scope="module")
def make_classifier(one_block, tiny_vocabulary):
    def make(run_eagerly=False, config=one_block, **options):
        keras.utils.set_random_seed(5)
        model = BertTextClassifier(
            BertBackbone(config),
            tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False),
            **options,
        )
        metric = "mae" if model.problem_type == "regression" else "accuracy"
        model.compile(AdamWeightDecay(3e-3), metrics=[metric], run_eagerly=run_eagerly)
        return model

    return make


@pytest.fixture(scope="module")
def same_classifier(make_classifier):
    """A model for the tests that neither train it nor set an option."""
    return make_classifier(run_eagerly=True)


@pytest.mark.parametrize(
    "pooling",
    [
        "cls",
        pytest.param("mean", marks=pytest.mark.full),
        pytest.param("max", marks=pytest.mark.full),
        pytest.param("mean_max", marks=pytest.mark.full),
    ],
)
def test_learns_from_raw_text(make_classifier, pooling):
    model = make_classifier(pooling=pooling, dropout=0.0)
    model.fit(TEXTS, LABELS, batch_size=8, epochs=8, verbose=0)
    assert model.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)["accuracy"] > 0.95


def test_every_kind_of_input_gives_the_same(same_classifier):
    model = same_classifier
    expected = model.predict(TEXTS, verbose=0)
    tokens = {name: value.numpy() for name, value in model.tokenize(TEXTS).items()}
    for inputs in (
        np.array(TEXTS),
        tf.constant(TEXTS),
        tf.data.Dataset.from_tensor_slices(TEXTS).batch(5),
        tokens,
    ):
        np.testing.assert_allclose(model.predict(inputs, verbose=0), expected, atol=1e-5)
    np.testing.assert_allclose(model(tf.constant(TEXTS)), expected, atol=1e-5)
    pairs = (TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(
        model.predict(pairs, verbose=0),
        model.predict(tf.data.Dataset.from_tensor_slices((pairs,)).batch(4), verbose=0),
        atol=1e-5,
    )
    assert model.predict("good film", verbose=0).shape == (1, 2)


def test_validation_on_text(make_classifier):
    model = make_classifier(run_eagerly=True)
    sweep = ThresholdSweep(TEXTS, LABELS, restore_best_weights=True)
    history = model.fit(
        TEXTS, LABELS, validation_data=(TEXTS, LABELS), epochs=2, verbose=0, callbacks=[sweep]
    ).history
    assert len(history["val_accuracy"]) == len(history["val_best_f1"]) == 2
    assert sweep.best_f1 == max(history["val_best_f1"])
    split = model.fit(TEXTS, LABELS, validation_split=0.25, epochs=1, verbose=0).history
    assert "val_loss" in split


@pytest.mark.usefixtures("eager_steps")
def test_padding_free_and_padded_learn_the_same(make_classifier):
    losses = []
    for padding_free in (True, False):
        model = make_classifier(dropout=0.0)
        model.backbone.padding_free = padding_free
        for block in model.backbone.encoder.blocks:
            block.attention.dropout_rate = 0.0
            block.attention_layer_norm.dropout_rate = 0.0
            block.output_layer_norm.dropout_rate = 0.0
        model.backbone.embeddings.dropout.rate = 0.0
        history = model.fit(TEXTS, LABELS, batch_size=8, epochs=2, shuffle=False, verbose=0)
        losses.append(history.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)


@pytest.mark.full
def test_compiled_by_xla(make_classifier, one_block):
    # The reference of dropout takes XLA long; tests/conformance/test_ops.py compiles it too.
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    options = {"config": dataclasses.replace(one_block, **rates), "pooling": "mean", "dropout": 0.0}
    model = make_classifier(run_eagerly=True, **options)
    expected = model.predict(TEXTS, verbose=0)
    compiled = make_classifier(**options)
    compiled.compile(AdamWeightDecay(3e-3), jit_compile=True)
    tokens = {name: value.numpy() for name, value in model.tokenize(TEXTS).items()}
    from bert_tf import ops

    with ops.backend("reference"):
        np.testing.assert_allclose(compiled.predict(tokens, verbose=0), expected, atol=1e-5)
        compiled.fit(tokens, LABELS, verbose=0)


def test_long_text_is_cut(make_classifier, same_classifier):
    model = make_classifier(max_length=10)
    assert model.tokenize(["good " * 500])["token_ids"].shape == (1, 10)
    assert same_classifier.tokenize(["good " * 500])["token_ids"].shape == (1, 40)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda m: m.fit(TEXTS, LABELS[:-1]), "a row for every text: 32"),
        (lambda m: m.predict((TEXTS, TEXTS[:3])), "same number of rows"),
        (lambda m: m.predict(["good", 3]), "row 1: 3"),
        (lambda m: m.fit(TEXTS, LABELS, validation_split=0.99), "both sides"),
    ],
)
def test_wrong_inputs_are_refused(same_classifier, call, words):
    with pytest.raises(UserError, match=words):
        call(same_classifier)


@pytest.mark.parametrize(
    "options,words",
    [
        ({"num_classes": 0}, "num_classes"),
        ({"labels": ["a"]}, "num_classes"),
        ({"problem_type": "ranking"}, "problem_type"),
        ({"num_classes": 3, "labels": ["a", "b"]}, "num_classes"),
        ({"pooling": "first"}, "pooling"),
        ({"max_length": 41}, r"\[3, 40\]"),
    ],
)
def test_wrong_options_are_refused(same_classifier, options, words):
    with pytest.raises(UserError, match=words):
        BertTextClassifier(same_classifier.backbone, tokenizer=same_classifier.tokenizer, **options)


def test_without_tokenizer_text_is_refused(same_classifier):
    with pytest.raises(UserError, match="without a tokenizer"):
        BertTextClassifier(same_classifier.backbone).predict(["good"])


PROBLEMS = {
    "regression": (dict(num_classes=1), np.array([1.0, -1.0, 1.0, -1.0] * 8)),
    "multi_label_classification": (
        dict(labels=["praise", "film"], problem_type="multi_label_classification"),
        [["praise", "film"], ["film"], ["praise"], []] * 8,
    ),
    "single_label_classification": (dict(labels=["bad", "good"]), ["good", "bad"] * 16),
}


@pytest.mark.parametrize(
    "problem_type",
    [
        "regression",
        "multi_label_classification",
        pytest.param("single_label_classification", marks=pytest.mark.full),
    ],
)
def test_problem_types_learn_and_come_back(make_classifier, tmp_path, problem_type):
    options, labels = PROBLEMS[problem_type]
    model = make_classifier(dropout=0.0, pooling="mean", **options)
    assert model.problem_type == problem_type
    model.compile(AdamWeightDecay(3e-3))
    model.fit(TEXTS, labels, batch_size=8, epochs=12, verbose=0)
    results = all_scores(
        model.targets(labels), model.probabilities(model.predict(TEXTS, verbose=0)), problem_type
    )
    assert results.get("accuracy", results.get("exact_match", results.get("pearson"))) > 0.95
    for format in ("huggingface", "tf1", "bert_tf"):
        model.save_pretrained(tmp_path / format, format=format)
        opened = BertTextClassifier.from_pretrained(tmp_path / format)
        assert (
            opened.get_config().items()
            >= {
                "problem_type": problem_type,
                "labels": model.labels,
                "pooling": "mean",
                "num_classes": model.num_classes,
            }.items()
        )
        np.testing.assert_array_equal(opened.classifier.kernel, model.classifier.kernel)
    config = json.loads((tmp_path / "huggingface" / "config.json").read_text())
    assert config["problem_type"] == problem_type
    assert len(config["id2label"]) == model.num_classes


def test_a_foreign_files_problem_type(make_classifier, tmp_path):
    """What `transformers` writes says only problem_type and id2label."""
    make_classifier(labels=["a", "b"]).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config = {key: value for key, value in config.items() if not key.startswith("bert_tf")}
    path.write_text(json.dumps({**config, "problem_type": "multi_label_classification"}))
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert (opened.problem_type, opened.labels) == ("multi_label_classification", ["a", "b"])
    renamed = BertTextClassifier.from_pretrained(tmp_path, labels=["x", "y"])
    assert (renamed.problem_type, renamed.labels) == ("multi_label_classification", ["x", "y"])
    path.write_text(json.dumps({**config, "problem_type": "ranking"}))
    with pytest.raises(UserError, match="ranking"):
        BertTextClassifier.from_pretrained(tmp_path)


@pytest.fixture(scope="module")
def named_classifier(make_classifier):
    """One with names of classes, for the tests of labels that are refused."""
    return make_classifier(labels=["bad", "good"], run_eagerly=True)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda m: m.fit(["good"], ["fine"]), r"\['bad', 'good'\]. Received: 'fine'"),
        (lambda m: m.evaluate(["good"], ["fine"]), "Received: 'fine'"),
        (lambda m: m.evaluate(["good"], [2]), r"in \[0, 2\). Received: 2 in row 0"),
        (lambda m: m.fit(["good"], [0], validation_data=(["bad"], [-1])), "Received: -1 in row 0"),
    ],
)
def test_unknown_labels_are_refused(named_classifier, call, words):
    with pytest.raises(DataError, match=words):
        call(named_classifier)


@pytest.mark.parametrize("names", [[1, 2], ["1", "0"], ["True", "False"], ["x", "0"]])
def test_numbers_that_may_be_names_are_refused(make_classifier, names):
    model = make_classifier(labels=names, run_eagerly=True)
    dataset = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(8)
    for call in (
        lambda: model.fit(TEXTS, LABELS),
        lambda: model.fit(TEXTS, list(map(bool, LABELS))),
        lambda: model.fit(TEXTS, tf.constant(LABELS)),
        lambda: model.fit(dataset),
        lambda: model.fit(TEXTS, [str(names[0])] * 32, validation_data=(TEXTS, LABELS)),
        lambda: model.evaluate(TEXTS, LABELS),
        lambda: model.evaluate(dataset),
    ):
        with pytest.raises(DataError, match="Labels must be strings if names"):
            call()
    named = [str(names[label]) for label in LABELS]
    np.testing.assert_array_equal(model.targets(named), LABELS)
    model.evaluate(TEXTS, named, verbose=0)


def test_numbers_are_ids_where_names_are_the_ids(make_classifier):
    model = make_classifier(labels=[0, 1], run_eagerly=True)
    expected = model.evaluate(TEXTS, [str(label) for label in LABELS], verbose=0)
    assert model.evaluate(TEXTS, LABELS, verbose=0) == expected


@pytest.mark.parametrize(
    "options, labels, metric",
    [
        ({}, LABELS, "accuracy"),
        pytest.param({"num_classes": 1}, LABELS.astype(np.float32), "mae", marks=pytest.mark.full),
        pytest.param(
            {"problem_type": "multi_label_classification"},
            np.eye(2)[LABELS],
            "auc",
            marks=pytest.mark.full,
        ),
    ],
)
def test_evaluates_without_compile(tiny_config, tiny_vocabulary, options, labels, metric):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    model = BertTextClassifier(BertBackbone(tiny_config), tokenizer=tokenizer, **options)
    scores = model.evaluate(TEXTS, labels, verbose=0, return_dict=True)
    assert set(scores) == {"loss", metric}
    outputs = model.predict(TEXTS, verbose=0)
    if metric == "accuracy":
        assert scores[metric] == pytest.approx((outputs.argmax(axis=1) == LABELS).mean())
    if metric == "mae":
        assert scores[metric] == pytest.approx(np.abs(outputs[:, 0] - LABELS).mean(), abs=1e-5)
    explicit = keras.optimizers.SGD(0.0)
    model.compile(explicit, run_eagerly=True)
    model.fit(TEXTS, labels, verbose=0)
    assert model.optimizer is explicit
