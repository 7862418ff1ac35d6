"""What users pass to `fit`, `evaluate`, `predict` and the answer methods: the same in every task.

The models compute eagerly and are made once; only values are looked at.
"""

import collections
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import (
    BertBackbone,
    BertFeatureExtractor,
    BertMaskedLM,
    BertMultipleChoice,
    BertNextSentencePredictor,
    BertQuestionAnswerer,
    BertSentenceEncoder,
    BertTextClassifier,
    BertTokenClassifier,
    BertTokenizer,
)
from bert_tf.adapt import DistillationModel
from bert_tf.errors import UserError
from bert_tf.models import TaskModel
from bert_tf.training.fit_data import text_batches
from tests.conformance.task import assert_same
from tests.training.fit_arguments import fit_arguments

A, B = ["good film", "bad", "the good."], ["bad film", "good good", "the"]
MASKED = ["the [MASK].", "good [MASK]"]
CLASSES = {
    "classifier": (BertTextClassifier, {"labels": ["bad", "good"]}),
    "unnamed": (BertTextClassifier, {"num_classes": 3}),
    "regressor": (BertTextClassifier, {"num_classes": 1}),
    "multi_label": (
        BertTextClassifier,
        {"labels": ["bad", "good"], "problem_type": "multi_label_classification"},
    ),
    "token_classification": (BertTokenClassifier, {"labels": ["O", "B-X", "I-X"]}),
    "question_answering": (BertQuestionAnswerer, {"max_length": 24, "doc_stride": 8}),
    "multiple_choice": (BertMultipleChoice, {}),
    "masked_lm": (BertMaskedLM, {}),
    "next_sentence": (BertNextSentencePredictor, {}),
    "encoder": (BertSentenceEncoder, {}),
    "extractor": (BertFeatureExtractor, {"layer_indices": [-1], "combine": "sum"}),
}


@pytest.fixture(scope="module")
def models(tiny_config, tiny_vocabulary):
    """One of each task, computed eagerly: tracing would take longer than the tests.

    The tokenizer keeps case: its graph, which every dataset of text holds, has a third as many
    operations as that of one that lowers it.
    """
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    made = {}

    def get(name):
        if name not in made:
            kind, options = CLASSES[name]
            model = kind(BertBackbone(tiny_config), tokenizer=tokenizer, **options)
            model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
            made[name] = model
        return made[name]

    return get


def pandas_column(values):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    return pandas.Series(values, index=range(7, 7 + len(values)))  # no row 0


def arrow_column(values):
    return pytest.importorskip("pyarrow", reason="needs pyarrow").array(values)


def polars_column(values):
    return pytest.importorskip("polars", reason="needs polars").Series(values)


def datasets_column(values):
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    return datasets.Dataset.from_dict({"column": values})["column"]


CONTAINERS = {
    "tuple_of_many": list,
    "array": np.array,
    "objects": lambda values: np.array(values, object),
    "n_1": lambda values: np.array(values, object)[:, np.newaxis],
    "tensor": tf.constant,
    "deque": collections.deque,
    "generator": lambda values: (value for value in values),
    "pandas": pandas_column,
    "pyarrow": arrow_column,
    "polars": polars_column,
    "datasets": datasets_column,
}
every_container = pytest.mark.parametrize("column", CONTAINERS.values(), ids=CONTAINERS)
few_containers = pytest.mark.parametrize(
    "column",
    [
        pytest.param(
            make, id=name, marks=() if name in ("generator", "pyarrow") else pytest.mark.full
        )
        for name, make in CONTAINERS.items()
    ],
)


def loss_of(model, x, y=None, **options):
    return model.evaluate(x, y, verbose=0, return_dict=True, **options)["loss"]


@every_container
def test_texts_of_any_container(models, column):
    model = models("classifier")
    expected = model.predict((A, B), verbose=0)
    np.testing.assert_allclose(
        model.predict((column(A), column(B)), verbose=0), expected, atol=1e-6
    )
    encoder = models("encoder")
    np.testing.assert_allclose(encoder.encode(column(A)), encoder.encode(A), atol=1e-6)


@few_containers
def test_labels_and_weights_of_any_container(models, column):
    names, weights = ["good", "bad", "bad"], [3.0, 1.0, 0.5]
    model = models("classifier")
    expected = loss_of(model, A, np.array([1, 0, 0]), sample_weight=np.array(weights))
    found = loss_of(model, column(A), column(names), sample_weight=column(weights))
    assert found == pytest.approx(expected, rel=1e-5)
    by_id = loss_of(model, column(A), column([1, 0, 0]), sample_weight=column(weights))
    assert by_id == pytest.approx(expected, rel=1e-5)


@few_containers
def test_fit_takes_any_container(models, column):
    model, names = models("classifier"), ["good", "bad", "bad"]
    model.fit(
        column(A), column(names), validation_data=(column(A), column(names)), epochs=1, verbose=0
    )


PAIRS = list(zip(A, B))


def data_frame(pairs):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    return pandas.DataFrame(pairs, columns=["first", "second"], index=[4, 2, 9])


ROWS = {
    "list": list,
    "array": np.array,
    "tensor": tf.constant,
    "iterator": iter,
    "data_frame": data_frame,
}


@pytest.mark.parametrize(
    "task, make",
    [
        *(pytest.param("classifier", make, id=name) for name, make in ROWS.items()),
        ("next_sentence", list),
        ("extractor", list),
    ],
)
def test_pairs_by_rows_are_pairs_by_columns(models, task, make):
    model = models(task)
    expected = model.predict((A, B), verbose=0)
    np.testing.assert_allclose(model.predict(make(PAIRS), verbose=0), expected, atol=1e-6)


def test_pairs_by_rows_of_question_answering_and_in_fit(models):
    model = models("question_answering")
    assert_same(model.predict(PAIRS, verbose=0), model.predict((A, B), verbose=0))
    answers = [("bad", 0), ("good", 5), None]
    loss = loss_of(model, (A, B), answers)
    assert loss_of(model, PAIRS, answers) == pytest.approx(loss)
    encoder = models("encoder")
    encoder.compile(keras.optimizers.SGD(0.0), objective="ranking", run_eagerly=True)
    assert loss_of(encoder, PAIRS) == pytest.approx(loss_of(encoder, (A, B)))


def test_a_tuple_of_two_strings_is_one_pair(models):
    for task in ("classifier", "next_sentence"):
        one = models(task).predict(("good", "bad film"), verbose=0)
        np.testing.assert_allclose(one, models(task).predict((["good"], ["bad film"]), verbose=0))
        called = models(task)((tf.constant(["good"]), tf.constant(["bad film"])))
        np.testing.assert_allclose(called, one, atol=1e-6)
        rows = models(task)(tf.constant([["good", "bad film"]]))  # [n, 2]
        np.testing.assert_allclose(rows, one, atol=1e-6)
    extractor = models("extractor")
    features = extractor.extract(("good", "bad film"))
    np.testing.assert_allclose(features, extractor.extract((["good"], ["bad film"]))[0])
    model = models("question_answering")
    assert model.answer("good", "bad film") == model.answer(["good"], ["bad film"])[0]
    expected = model.predict((["good"], ["bad film"]), verbose=0)
    assert_same(model.predict(("good", "bad film"), verbose=0), expected)
    masked = models("masked_lm").fill_mask(("the [MASK]", "bad"), top_k=2)
    assert masked == models("masked_lm").fill_mask((["the [MASK]"], ["bad"]), top_k=2)[0]
    probability = models("next_sentence").next_sentence_probability("good", "bad film")
    assert probability.shape == ()
    model = models("multiple_choice")
    np.testing.assert_allclose(
        model.predict(("the", ["good", "bad"]), verbose=0),
        model.predict((["the"], [["good", "bad"]]), verbose=0),
    )


@pytest.mark.parametrize("task", ["classifier", "encoder", "extractor"])
def test_a_list_of_two_strings_is_two_texts(models, task):
    model = models(task)
    expected = model.predict(["good", "bad"], batch_size=2, verbose=0)
    assert len(expected) == 2
    np.testing.assert_allclose(model(tf.constant(["good", "bad"])), expected, atol=1e-6)
    np.testing.assert_allclose(model(tf.constant([["good"], ["bad"]])), expected, atol=1e-6)
    tokens = model.tokens_of(["good", "bad"])
    np.testing.assert_allclose(model(tokens), expected, atol=1e-6)
    assert model(tf.constant("good")).shape[0] == 1


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda get: get("encoder").encode(("good", "bad")), "list of strings is"),
        (lambda get: get("encoder").predict((A, B)), "Encode each list by itself"),
        (
            lambda get: get("token_classification").tag(("good", "bad")),
            "Texts must be a list of strings",
        ),
        (lambda get: get("token_classification").predict(("good", "bad")), "`tag` finds"),
        (lambda get: get("masked_lm").score(("good", "bad")), "Score each by itself"),
        (
            lambda get: get("question_answering").predict(["good"]),
            r"A pair \(questions, contexts\)",
        ),
        (lambda get: get("next_sentence").predict(["good"]), "Pairs are a tuple of two lists"),
        (lambda get: get("multiple_choice").predict(("good", "bad")), r"\(prompts, choices\)"),
        (lambda get: get("multiple_choice").predict(A), r"\(prompts, choices\)"),
        (lambda get: get("classifier").predict([["a", "b"], ["c", "d"]]), "list of tuples"),
        (lambda get: get("classifier").predict(("a", "b", "c", "d")), r"list\(texts\)"),
        (lambda get: get("classifier").predict((A, B, A)), "1 or 2 texts"),
        (lambda get: get("classifier").predict([("a", "b"), ("c",)]), "row 1"),
        (lambda get: get("classifier").predict({"a", "b"}), "in an order"),
    ],
)
def test_other_shapes_are_refused_with_the_right_call(models, call, words):
    with pytest.raises(UserError, match=words):
        call(models)


@pytest.mark.parametrize("x", [None, {}, [[]], [{}], [[], []]], ids=repr)
@pytest.mark.parametrize("task", CLASSES)
def test_what_holds_neither_text_nor_tokens_is_refused(models, task, x):
    model = models(task)
    if task == "token_classification" and x and x[0] == []:  # sentences without words
        assert model.predict(x, verbose=0)["row_splits"].tolist() == [0] * (1 + len(x))
        for method in (model.fit, model.evaluate):
            with pytest.raises(UserError, match="`x` must have at least one word"):
                method(x, x, verbose=0)
        return
    for method in (model.predict, model.predict_on_batch, model.fit, model.evaluate):
        with pytest.raises(UserError, match="`x` must be texts or a token dictionary"):
            method(x)


@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize(
    "call",
    [
        lambda get, gap: get("classifier").predict(["good", "bad", gap, "the", gap]),
        lambda get, gap: get("classifier").predict((["a"] * 5, ["a", "b", gap, "c", gap])),
        lambda get, gap: get("classifier").predict([("a", "b"), ("a", "b"), gap, ("a", "b"), gap]),
        lambda get, gap: get("classifier").fit(["a"] * 5, ["bad", "good", gap, "bad", gap]),
        lambda get, gap: get("unnamed").fit(["a"] * 5, [1, 0, gap, 1, gap]),
        lambda get, gap: get("regressor").fit(["a"] * 5, [1.0, 0.0, gap, 1.0, gap]),
        lambda get, gap: get("multi_label").fit(["a"] * 5, [["bad"], [], gap, ["good"], gap]),
        lambda get, gap: get("classifier").fit(
            ["a"] * 5, [0] * 5, sample_weight=[1, 1, gap, 1, gap]
        ),
        lambda get, gap: get("token_classification").predict([["a"], ["b"], gap, ["c"], gap]),
        lambda get, gap: get("multiple_choice").predict(
            (["a"] * 5, [["a", "b"]] * 2 + [gap, ["a", "b"], gap])
        ),
        lambda get, gap: get("encoder").encode(["good", "bad", gap, "the", gap]),
    ],
)
def test_missing_values_name_their_rows(models, call, missing):
    with pytest.raises(UserError, match="rows 2, 4 of 5"):
        call(models, missing)


def test_pandas_missing_values_name_their_rows(models):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    for dtype in ("str", "string", object):
        with pytest.raises(UserError, match="row 1 of 2"):
            models("classifier").predict(pandas.Series(["good", pandas.NA], dtype=dtype))
    with pytest.raises(UserError, match="row 1 of 2"):
        models("classifier").fit(A[:2], pandas.Series([1, pandas.NA], dtype="Int64"))
    frame = pandas.DataFrame({"first": A, "second": ["a", None, "b"]}, index=[5, 5, 2])
    with pytest.raises(UserError, match=r"row 1 of 3, .*dropna.*fillna"):
        models("classifier").classify(frame[["first", "second"]])
    models("classifier").fit(frame.dropna()[["first", "second"]], [1, 0], verbose=0)
    assert len(models("classifier").classify(frame[["first", "second"]].fillna(""))) == 3


def test_a_data_frame_for_a_data_frame(models):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame({"first": A, "second": B, "stars": [1, 0, 1]}, index=[9, 2, 2])
    model = models("classifier")
    expected = model.probabilities(model.predict((A, B), verbose=0))
    for texts in (frame[["first", "second"]], (frame["first"], frame["second"])):
        found = model.classify(texts, as_frame=True)
        assert found.index.tolist() == [9, 2, 2]
        assert list(found) == ["predicted_label", "probability_bad", "probability_good"]
        np.testing.assert_allclose(found.iloc[:, 1:], expected, rtol=1e-5)
        names = [["bad", "good"][place] for place in expected.argmax(axis=1)]
        assert found["predicted_label"].tolist() == names
    loss = loss_of(model, frame[["first", "second"]], frame["stars"])
    assert loss == pytest.approx(loss_of(model, (A, B), [1, 0, 1]))
    model.fit(frame[["first", "second"]], frame["stars"], verbose=0)
    assert model.classify(A, as_frame=True).index.tolist() == [0, 1, 2]
    assert len(model.classify("good film", as_frame=True)) == 1
    assert list(model.classify([], as_frame=True)) == list(found)
    assert list(models("regressor").classify(frame["first"], as_frame=True)) == ["predicted_value"]
    several = models("multi_label").classify(frame["first"], as_frame=True)["predicted_labels"]
    assert several.tolist() == [list(one.labels) for one in models("multi_label").classify(A)]


LABELS = {
    "names": ("classifier", ["good", "bad", "good"], [1, 0, 1]),
    "n_1": ("classifier", [[1], [0], [1]], [1, 0, 1]),
    "names_n_1": ("classifier", np.array([["good"], ["bad"], ["good"]]), [1, 0, 1]),
    "one_hot": ("classifier", [[0, 1], [1, 0], [0, 1]], [1, 0, 1]),
    "whole_floats": ("classifier", [1.0, 0.0, 1.0], [1, 0, 1]),
    "booleans": ("classifier", [True, False, True], [1, 0, 1]),
    "tensor_of_names": ("classifier", tf.constant(["good", "bad", "good"]), [1, 0, 1]),
    "ids_as_strings": ("unnamed", ["2", "0", "1"], [2, 0, 1]),
    "regression_n_1": ("regressor", [[0.5], [1.0], [-1.0]], [0.5, 1.0, -1.0]),
    "numbers_as_strings": ("regressor", ["0.5", "1", "-1"], [0.5, 1.0, -1.0]),
    "sets": ("multi_label", [{"bad", "good"}, set(), {"good"}], [[1, 1], [0, 0], [0, 1]]),
    "sets_of_ids": ("multi_label", [{0, 1}, set(), {1}], [[1, 1], [0, 0], [0, 1]]),
    "lists_of_names": ("multi_label", [["bad", "good"], [], ["good"]], [[1, 1], [0, 0], [0, 1]]),
    "names_for_next_sentence": ("next_sentence", [["1"], ["0"], ["1"]], [1, 0, 1]),
}


@pytest.mark.parametrize("task,labels,plain", LABELS.values(), ids=LABELS)
def test_forms_of_labels(models, task, labels, plain):
    model = models(task)
    x = (A, B) if task == "next_sentence" else A
    assert loss_of(model, x, labels) == pytest.approx(loss_of(model, x, np.array(plain)))
    tokens = model.tokenize(*x) if isinstance(x, tuple) else model.tokenize(x)
    assert loss_of(model, tokens, labels) == pytest.approx(loss_of(model, tokens, np.array(plain)))


def test_one_hot_labels_stay_for_a_loss_that_takes_them(models):
    model = models("unnamed")
    soft = np.array([[0.5, 0.5, 0], [0, 0, 1], [1, 0, 0]], np.float32)
    expected = keras.losses.categorical_crossentropy(soft, model.predict(A, verbose=0), True)
    model.compile(loss=keras.losses.CategoricalCrossentropy(from_logits=True), run_eagerly=True)
    assert loss_of(model, A, soft) == pytest.approx(float(np.mean(expected)), rel=1e-5)
    model.compile(run_eagerly=True)


@pytest.mark.parametrize(
    "task,labels,words",
    [
        ("classifier", [[1, 0, 0]] * 3, "one-hot rows"),
        ("classifier", [[1, 1], [0, 1], [0, 1]], "row 0"),
        ("classifier", [0.5, 1.0, 0.0], "row 0: 0.5"),
        ("classifier", [{"good"}, {"bad"}, {"good"}], "row 0"),
        ("classifier", ["good", "bad", "\ud800"], "'.ud800'"),
        ("classifier", ["good"], "a row for every text: 3"),
        ("unnamed", ["5", "0", "1"], r"in \[0, 3\)"),
        ("unnamed", ["good", "0", "1"], "'good'"),
        ("regressor", [[0.5, 1.0]] * 3, r"\(3, 2\)"),
        ("regressor", ["0.5", "much", "1"], "row 1: 'much'"),
        ("regressor", [0.5, float("inf"), 1], "finite"),
        ("multi_label", ["good", "bad", "good"], "row 0: 'good'"),
        ("multi_label", [[1, 0, 0]] * 3, "row 0"),
        ("multi_label", [[2, 0]] * 3, "row 0"),
        ("multi_label", [["good"], ["fine"], []], "'fine'"),
        ("next_sentence", [0, 2, 1], r"in \[0, 2\)"),
        ("classifier", None, "`y` must be labels"),
        ("next_sentence", None, "`y` must be labels"),
        ("question_answering", None, "`y` must be the answers"),
        ("token_classification", None, "no lists of tags"),
    ],
)
@pytest.mark.parametrize("method", ["fit", "evaluate"])
def test_wrong_labels_are_refused(models, method, task, labels, words):
    x = {
        "next_sentence": (A, B),
        "question_answering": (A, B),
        "token_classification": [["a", "b"]],
    }.get(task, A)
    with pytest.raises(UserError, match=words):
        getattr(models(task), method)(x, labels, verbose=0)


def test_datasets_with_labels_by_name(models):
    model = models("classifier")
    expected = loss_of(model, A, [1, 0, 1])

    def batches(labels):
        return tf.data.Dataset.from_tensor_slices((A, labels)).batch(2)

    names = ["good", "bad", "good"]
    for labels in (names, [[0, 1], [1, 0], [0, 1]]):
        assert loss_of(model, batches(labels)) == pytest.approx(expected)
    tokens = tf.data.Dataset.from_tensors((model.tokenize(A), ["good", "bad", "good"]))
    assert loss_of(model, tokens) == pytest.approx(expected)
    with pytest.raises(UserError, match="model knows.*fine"):
        loss_of(model, batches(["good", "fine", "good"]))
    with pytest.raises(UserError, match=r"dataset.batch\(32\)"):
        loss_of(model, tf.data.Dataset.from_tensor_slices((A, [1, 0, 1])))
    with pytest.raises(UserError, match="dictionary of"):
        loss_of(model, tf.data.Dataset.from_tensors(({"text": A}, [1, 0, 1])))
    with pytest.raises(UserError, match="`y` must be labels"):
        model.fit(tf.data.Dataset.from_tensors(A), verbose=0)
    numbers = tf.data.Dataset.from_tensors((A, ["0.5", "1", "-1"]))
    regressor = models("regressor")
    assert loss_of(regressor, numbers) == pytest.approx(loss_of(regressor, A, [0.5, 1, -1]))


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        rows = slice(2 * number, 2 * number + 2)
        return np.array(A)[rows], np.array(["good", "bad", "good"])[rows]


@pytest.mark.parametrize("make", [Batches, lambda: (b for b in Batches())])
def test_batches_of_text(models, make):
    model = models("classifier")
    assert loss_of(model, make()) == pytest.approx(loss_of(model, A, [1, 0, 1]))
    model.fit(make(), verbose=0, validation_data=make())
    np.testing.assert_allclose(
        model.predict(make(), verbose=0), model.predict(A, verbose=0), atol=1e-6
    )
    with pytest.raises(UserError, match="given together"):
        models("question_answering").fit(make())


def test_batches_of_tokens_are_keras_own(models):
    model = models("classifier")
    tokens = {name: value.numpy() for name, value in model.tokenize(A).items()}
    batches = ((tokens, np.array([1, 0, 1])) for _ in range(2))
    assert loss_of(model, batches) == pytest.approx(loss_of(model, A, [1, 0, 1]))


@few_containers
def test_columns_of_words_and_tags(models, column):
    if column in (np.array, tf.constant, CONTAINERS["n_1"]):
        # One width for all sentences.
        words, tags = [["good", "film"], ["the", "bad"]], [["B-X", "I-X"], ["O", "O"]]
    else:
        words, tags = [["good", "film"], ["bad"]], [["B-X", "I-X"], ["O"]]
    if column is CONTAINERS["n_1"] or column is CONTAINERS["objects"]:
        column = list
    model = models("token_classification")
    expected = loss_of(model, words, tags, sample_weight=[2.0, 1.0])
    found = loss_of(model, column(words), column(tags), sample_weight=column([2.0, 1.0]))
    assert found == pytest.approx(expected)
    assert model.predict_tags(column(words)) == model.predict_tags(words)
    assert_same(model.predict(column(words), verbose=0), model.predict(words, verbose=0))
    assert model.tag(column(words)) == model.tag(words)
    model.fit(column(words), column(tags), validation_split=0.5, verbose=0)


@pytest.mark.parametrize(
    "column",
    [
        list,
        pytest.param(pandas_column, marks=pytest.mark.full),
        arrow_column,
        pytest.param(polars_column, marks=pytest.mark.full),
    ],
)
def test_columns_of_choices_and_answers(models, column):
    model = models("multiple_choice")
    lists = [["good", "bad"], ["a", "b"], ["the", "film"]]
    expected = loss_of(model, (A, lists), [0, 1, 1])
    found = loss_of(model, (column(A), column(lists)), column([0, 1, 1]))
    assert found == pytest.approx(expected)
    assert loss_of(model, list(zip(A, lists)), ["0", "1", "1"]) == pytest.approx(expected)
    model, answers = models("question_answering"), [("bad", 0), ("good", 5), ("the", 0)]
    weights = [5.0, 1.0, 0.1]
    expected = loss_of(model, (A, B), answers, sample_weight=weights)
    found = loss_of(model, (column(A), column(B)), answers, sample_weight=column(weights))
    assert found == pytest.approx(expected)
    assert model.answer(column(A), column(B)) == model.answer(A, B)


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"validation_data": A}, A),
        ({"validation_data": (A,)}, A),
        ({"validation_data": (A, None)}, A),
        ({"validation_data": (A, B)}, (A, B)),
        ({"validation_data": ((A, B),)}, (A, B)),
        ({"validation_split": 0.5}, A[1:]),
    ],
)
def test_masked_lm_validates_on_which_text(models, options, expected):
    model = models("masked_lm")
    data = fit_arguments(model, A, **options)["validation_data"]
    features, labels = next(iter(data))
    columns = expected if isinstance(expected, tuple) else (expected,)
    tokens = model.tokenize(*columns)
    ids, used = features["token_ids"].numpy(), labels["masked_weights"].numpy() > 0
    places = np.nonzero(used)[0], features["masked_positions"].numpy()[used]
    ids[places] = labels["masked_ids"].numpy()[used]
    np.testing.assert_array_equal(ids, tokens["token_ids"])


@pytest.mark.full
def test_masked_lm_validates_on_text(models):
    model = models("masked_lm")
    history = model.fit(A, validation_data=(A, B), verbose=0).history
    assert np.isfinite(history["val_loss"]).all()
    with pytest.raises(UserError, match="masked tokens are the labels"):
        model.fit(A, [1, 0, 1], verbose=0)


def test_nothing_gives_nothing(models):
    assert models("classifier").predict([], verbose=0).shape == (0, 2)
    assert models("classifier").predict(([], []), verbose=0).shape == (0, 2)
    assert models("regressor").predict(np.array([]), verbose=0).shape == (0, 1)
    assert models("next_sentence").predict(([], []), verbose=0).shape == (0, 2)
    assert models("next_sentence").next_sentence_probability([], []).shape == (0,)
    assert models("encoder").encode([]).shape == models("encoder").predict([]).shape == (0, 32)
    assert models("multiple_choice").predict(([], [])).shape[0] == 0
    for answers in (
        models("question_answering").answer([], []),
        models("token_classification").tag([]),
        models("token_classification").predict_tags([]),
        models("masked_lm").fill_mask([]),
        models("classifier").classify([]),
        models("multiple_choice").choose([], []),
    ):
        assert answers == []
    shapes = {
        "question_answering": (0, 2, 24),
        "token_classification": (0, 3),
        "masked_lm": (0, 64),
    }
    for task, shape in shapes.items():
        outputs = models(task).predict(([], []) if task == "question_answering" else [], verbose=0)
        assert outputs["logits"].shape == shape and outputs["row_splits"].tolist() == [0]
    assert models("masked_lm").score([]).shape == (0,)
    assert models("extractor").extract([]) == []
    for task, x in (("classifier", []), ("masked_lm", []), ("multiple_choice", ([], []))):
        with pytest.raises(UserError, match="at least one text"):
            models(task).fit(x, None if task == "masked_lm" else [])
    with pytest.raises(UserError, match="at least one word"):
        models("token_classification").fit([], [])


POSITIONAL = {
    "classifier": (A, [1, 0, 1]),
    "token_classification": ([["good", "film"]], [["B-X", "I-X"]]),
    "question_answering": ((A, B), [("bad", 0), ("good", 5), None]),
    "multiple_choice": ((A, [["a", "b"]] * 3), [0, 1, 1]),
    "masked_lm": (MASKED, None),
    "next_sentence": ((A, B), [0, 1, 1]),
}


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task in ("classifier", "masked_lm") else pytest.mark.full)
        for task in POSITIONAL
    ],
)
def test_positional_arguments_are_keras_own(models, task):
    model, (x, y) = models(task), POSITIONAL[task]
    assert len(model.fit(x, y, 2, 2, 0).history["loss"]) == 2  # batch_size, epochs, verbose
    loss = model.evaluate(x, y, 2, 0)  # batch_size, verbose
    assert np.isfinite(loss).all()
    outputs = model.predict(x, 2, 0)
    count = len(outputs["row_splits"]) - 1 if isinstance(outputs, dict) else len(outputs)
    assert count == len(x[0] if isinstance(x, tuple) else x)


@pytest.mark.parametrize("task", ["classifier", "masked_lm"])
def test_fit_refuses_what_keras_does_not_take(models, task):
    with pytest.raises(TypeError, match="steps_per_minute"):
        models(task).fit(*POSITIONAL[task], steps_per_minute=2)


@pytest.mark.full
def test_positional_arguments_of_an_encoder_and_of_a_distillation(models, tiny_config):
    encoder = models("encoder")
    encoder.compile(keras.optimizers.SGD(0.0), objective="ranking", run_eagerly=True)
    assert len(encoder.fit((A, B), None, 2, 2, 0).history["loss"]) == 2
    assert np.isfinite(encoder.evaluate((A, B), None, 2, 0)).all()
    assert encoder.predict(A, 2, 0).shape == (3, 32)
    teacher = models("classifier")
    student = BertTextClassifier(
        BertBackbone(tiny_config), labels=teacher.labels, tokenizer=teacher.tokenizer
    )
    model = DistillationModel(student, teacher)
    model.compile(keras.optimizers.SGD(0.0), run_eagerly=True)
    column = pandas_column
    history = model.fit(column(A), column(["good", "bad", "bad"]), 2, 2, 0)
    assert len(history.history["loss"]) == 2
    assert np.isfinite(model.evaluate(A, [1, 0, 0], 2, 0)).all()
    assert model.predict(A, 2, 0).shape == (3, 2)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda get, bad: get("classifier").predict(["good", bad]), "row 1"),
        (lambda get, bad: get("classifier").predict(([bad], ["good"])), "row 0"),
        (lambda get, bad: get("classifier").fit(["good", bad], [0, 1]), "row 1"),
        (lambda get, bad: get("encoder").encode(bad), "row 0"),
        (lambda get, bad: get("extractor").extract(["good", bad]), "row 1"),
        (lambda get, bad: get("masked_lm").fill_mask(["[MASK]", bad]), "row 1"),
        (lambda get, bad: get("masked_lm").score(["good", bad]), "row 1"),
        (lambda get, bad: get("question_answering").answer(["good", bad], ["a", "b"]), "row 1"),
        (lambda get, bad: get("multiple_choice").predict((["good"], [["a", bad]])), "row 1"),
        (
            lambda get, bad: get("token_classification").predict([["good"], ["a", bad]]),
            "sentence 1",
        ),
        (lambda get, bad: get("token_classification").tag(["good", bad]), "row 1"),
    ],
)
@pytest.mark.parametrize("bad", ["a \ud800", b"caf\xe9"], ids=["surrogate", "latin_1"])
def test_malformed_text_names_its_row(models, call, words, bad):
    with pytest.raises(UserError, match=f"Unicode.*{words}"):
        call(models, bad)


def test_malformed_text_in_a_dataset(models):
    dataset = tf.data.Dataset.from_tensors([b"caf\xe9"])
    with pytest.raises(UserError, match="UTF-8"):
        models("classifier").predict(dataset, verbose=0)


def test_a_tokenizer_that_replaces_takes_malformed_text(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, errors="replace")
    backbone = BertBackbone(tiny_config)
    encoder = BertSentenceEncoder(backbone, tokenizer=tokenizer)
    encoder.compile(run_eagerly=True)
    clean = encoder.encode(["good film"])
    for text in ("good \ud800film", b"good \xfffilm"):
        np.testing.assert_allclose(encoder.encode([text]), clean, atol=1e-6)
    model = BertTokenClassifier(backbone, labels=["O", "B-X"], tokenizer=tokenizer)
    model.compile(run_eagerly=True)
    assert len(model.predict_tags([["good", "\ud800"]])[0]) == 2


@pytest.mark.parametrize("kind", [BertTextClassifier, BertTokenClassifier])
def test_names_of_labels_must_be_valid_unicode(tiny_config, kind):
    with pytest.raises(UserError, match="Unicode"):
        kind(BertBackbone(tiny_config), labels=["good", "\ud800"])


def test_masked_lm_trains_on_both_texts_of_a_pair(models):
    preprocessor = models("masked_lm").preprocessor
    features, _ = next(iter(text_batches(preprocessor, preprocessor.read((A, B)), batch_size=3)))
    assert int(tf.reduce_max(features["segment_ids"])) == 1


def test_validation_with_a_generator_loses_no_batch(models):
    model = models("classifier")
    tokens = {name: values.numpy() for name, values in model.tokenize(A).items()}
    given = iter([(tokens, np.array([1, 0, 0]))] * 2)
    taken = []

    def batches():
        for batch in given:
            taken.append(batch)
            yield batch

    model.fit(
        tokens,
        np.array([1, 0, 0]),
        epochs=2,
        verbose=0,
        validation_data=batches(),
        validation_steps=1,
    )
    assert len(taken) == 2


def test_split_labels_keep_their_names(models):
    model = models("classifier")
    names, model.labels = model.labels, ["1", "2"]
    try:
        history = model.fit(A * 2, ["2", "1", "1"] * 2, validation_split=0.5, verbose=0).history
        assert "val_loss" in history
    finally:
        model.labels = names


@pytest.mark.parametrize("name", ["masked_lm", "token_classification"])
def test_models_with_their_own_loss_ask_for_labels(models, name):
    with pytest.raises(UserError, match="`y` must be labels"):
        models(name).fit({"token_ids": np.array([[2, 8, 3]])}, verbose=0)


def test_answers_of_texts_and_of_one(models):
    """Every method that answers takes a list or one example, and the options of batches."""
    lists = [["good", "bad"], ["a", "b"], ["the", "film"]]
    calls = {
        "classifier": lambda model, rows, **options: model.classify(rows(A), **options),
        "regressor": lambda model, rows, **options: model.classify(rows(A), **options),
        "multi_label": lambda model, rows, **options: model.classify(rows(A), **options),
        "question_answering": lambda model, rows, **options: model.answer(
            rows(A), rows(B), **options
        ),
        "token_classification": lambda model, rows, **options: model.tag(rows(A), **options),
        "masked_lm": lambda model, rows, **options: model.fill_mask(rows(MASKED), **options),
        "multiple_choice": lambda model, rows, **options: model.choose(
            rows(A), rows(lists), **options
        ),
        "next_sentence": lambda model, rows, **options: model.next_sentence_probability(
            rows(A), rows(B), **options
        ),
        "encoder": lambda model, rows, **options: model.encode(rows(A), **options),
        "extractor": lambda model, rows, **options: model.extract(rows(A), **options),
    }
    options = itertools.cycle([{"batch_size": 2}, {"token_budget": 8, "verbose": 0}])
    for task, call in calls.items():
        model = models(task)
        expected = call(model, list)
        found = call(model, list, **next(options))
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
        assert_same(call(model, lambda rows: rows[1]), expected[1])


class TaskWithoutAnswers(TaskModel):
    """A task whose author has not said what its outputs mean."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.built = True

    def call(self, inputs, training=False):
        return self.backbone(self.tokens_of(inputs), training=training)["pooled_output"]


def test_a_task_without_decode_names_the_method_to_write(models):
    known = models("classifier")
    model = TaskWithoutAnswers(known.backbone, known.tokenizer)
    model.compile(run_eagerly=True)
    assert model.predict(A, verbose=0).shape == (3, 32)
    with pytest.raises(UserError, match=r"`decode` must be .*Received: Preprocessor without it"):
        model.predict_decoded(A)


def test_what_a_classification_says(models):
    single = models("classifier").classify(A)
    probabilities = models("classifier").probabilities(models("classifier").predict(A, verbose=0))
    for row, found in enumerate(single):
        np.testing.assert_allclose(list(found.scores.values()), probabilities[row])
        assert found.labels == (["bad", "good"][probabilities[row].argmax()],)
        assert found.label == found.labels[0]
    number = models("regressor").classify("good film")
    assert number.label is None and list(number.scores) == ["LABEL_0"]
    for found in models("multi_label").classify(A):
        wanted = [name for name, score in found.scores.items() if score >= 0.5]
        assert list(found.labels) == wanted
    assert models("unnamed").classify("bad").label in ("LABEL_0", "LABEL_1", "LABEL_2")


def test_choices_are_the_highest_logits(models):
    choices = [["good", "bad"], ["a", "b"], ["the", "film"]]
    logits = models("multiple_choice").predict((A, choices), verbose=0)
    for row, found in enumerate(models("multiple_choice").choose(A, choices)):
        assert found.index == logits[row].argmax()
        assert found.text == choices[row][found.index]
        assert 0.5 <= found.probability <= 1
