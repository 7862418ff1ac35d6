"""Labels and names of classes in the forms that users have, and errors that say the way out."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.labels import IdsInGraph, class_ids, class_names, class_sets, number_rows
from tests.conformance.task import CONFIG, TEXTS, tokenizer

KINDS = [bert_tf.BertTextClassifier, bert_tf.BertTokenClassifier]


def test_names_without_labels():
    """A model without names says which ones it was given, and where they belong."""
    y, way_out = ["good", "bad", "good"], r"`labels=\['bad', 'good'\]`, or set `model.labels`"
    for values in (y, np.array(y), np.array(y, object), [b"good", b"bad"], tf.constant(y)):
        with pytest.raises(DataError, match=f"the model has no names.*row 0: b?'good'.*{way_out}"):
            class_ids(values, None, 2)
    with pytest.raises(DataError, match="row 1: 'bad'"):
        class_ids(["0", "bad"], None, 2)
    with pytest.raises(DataError, match=way_out):
        class_sets([["good", "bad"], []], None, 2)
    assert class_ids(["1", "0", " 1"], None, 2).tolist() == [1, 0, 1]
    with pytest.raises(tf.errors.InvalidArgumentError, match="Make the model with `labels="):
        IdsInGraph(None, 2)(tf.constant(["good"]))


def test_the_way_out_works():
    options = {"tokenizer": tokenizer(), "num_classes": 2}
    model = bert_tf.BertTextClassifier(bert_tf.BertBackbone(CONFIG), **options)
    y = ["good", "bad"] * 3
    model.compile("sgd", run_eagerly=True)
    for call in (model.fit, model.evaluate, lambda x, y: model.targets(y)):
        with pytest.raises(UserError, match="set `model.labels`"):
            call(TEXTS, y)
    model.labels = ["bad", "good"]
    model.fit(TEXTS, y, verbose=0)
    assert model.targets(y).tolist() == [1, 0] * 3


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_names_from_a_column(kind, tmp_path):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    column = pandas.Series(["no", "yes", "no"], index=[3, 1, 2])
    backbone = bert_tf.BertBackbone(CONFIG)
    backbone.save_pretrained(tmp_path)
    for names in (column.unique(), column.drop_duplicates(), np.array(["no", "yes"])):
        for model in (kind(backbone, labels=names), kind.from_pretrained(tmp_path, labels=names)):
            assert model.labels == ["no", "yes"]
    for labels in (column, column.to_numpy()):
        for make in (
            lambda y: kind(backbone, labels=y),
            lambda y: kind.from_pretrained(tmp_path, labels=y),
        ):
            with pytest.raises(UserError, match=r"3 names, several times \['no'\].*sorted\(set"):
                make(labels)


def test_names_that_are_none():
    with pytest.raises(UserError, match="`labels` must be a list of names, in the order"):
        class_names({0: "no", 1: "yes"})
    with pytest.raises(UserError, match="`labels` must be a list of names, one"):
        class_names(np.array([["no"], ["yes"]]))
    with pytest.raises(DataError, match="`labels` must have a value in every row.*row 1 of 2"):
        class_names(["no", None])
    assert class_names(tf.constant(["no", "yes"])) == ["no", "yes"]


def test_the_error_for_missing_numbers_does_not_suggest_texts():
    for values in ([1.0, None], np.array([1.0, np.nan]), np.array([[1.0, np.nan]]), [None, 3]):
        with pytest.raises(DataError, match="dropna.*or fill the values in.$"):
            number_rows(values)
    with pytest.raises(DataError, match="fillna"):
        class_ids(["good", None], ["bad", "good"], 2)
