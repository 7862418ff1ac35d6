"""The registry of tasks refuses specs that clash."""

import dataclasses
import types

import pytest

from bert_tf import tasks
from bert_tf.base import json_schema
from bert_tf.checkpoints.model_weights import AMBIGUOUS_HEADS


@pytest.mark.parametrize(
    "change,message",
    [
        ({"model": "BertTextClassifier"}, "`model` of every SPEC must be its own"),
        ({"name": "elsewhere"}, "its `name` its folder's"),
        ({"architectures": ("BertForSequenceClassification",)}, "first architecture"),
    ],
)
def test_specs_that_clash_are_refused(monkeypatch, change, message):
    found = {spec.name: spec for spec in tasks.specs()}
    found["masked_lm"] = dataclasses.replace(found["masked_lm"], **change)
    monkeypatch.setattr(
        tasks.importlib,
        "import_module",
        lambda module: types.SimpleNamespace(SPEC=found[module.rpartition(".")[2]]),
    )
    with pytest.raises(ValueError, match=message):
        tasks.specs.__wrapped__()


def test_an_option_of_two_kinds_is_refused(monkeypatch):
    specs = [
        dataclasses.replace(spec, options={"dropout": json_schema.FLAG})
        if spec.name == "masked_lm"
        else spec
        for spec in tasks.specs()
    ]
    monkeypatch.setattr(tasks, "specs", lambda: specs)
    with pytest.raises(ValueError, match="must have one kind. Received: dropout"):
        tasks.options.__wrapped__()


def test_heads_that_share_names_in_hugging_face_files():
    assert sorted(AMBIGUOUS_HEADS) == ["classifier", "token_classifier"]
