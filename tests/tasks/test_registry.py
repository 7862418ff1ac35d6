"""The registry of tasks refuses specs that clash."""

import dataclasses
import types

import pytest

from bert_tf import tasks
from bert_tf.base import json_schema
from bert_tf.checkpoints.weight_names import ambiguous_heads
from bert_tf.errors import UserError
from bert_tf.models.task_spec import Answers, TaskInput, TaskSpec


@pytest.mark.parametrize(
    "change,message",
    [
        ({"model": "BertTextClassifier"}, "`model` of every SPEC must be unique"),
        ({"name": "elsewhere"}, "must be the name of the folder"),
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
    with pytest.raises(UserError, match=message):
        tasks.specs.__wrapped__()


def test_an_option_of_two_kinds_is_refused(monkeypatch):
    specs = [
        dataclasses.replace(spec, options={"dropout": json_schema.FLAG})
        if spec.name == "masked_lm"
        else spec
        for spec in tasks.specs()
    ]
    monkeypatch.setattr(tasks, "specs", lambda: specs)
    with pytest.raises(UserError, match="must be the same in all SPECs. Received: dropout"):
        tasks.options.__wrapped__()


def test_heads_that_share_names_in_hugging_face_files():
    assert sorted(ambiguous_heads()) == ["classifier", "token_classifier"]


def test_registered_tasks():
    spec = TaskSpec("age", "AgeRegressor", ("AgeRegressor",), module="my_tasks.age")
    before = tasks.specs()
    try:
        tasks.register_task(spec)
        tasks.register_task(spec)
        assert tasks.specs() == (*before, spec) and tasks.spec_of("AgeRegressor") is spec
        assert tasks.registered_packages() == ["my_tasks.age"]
        others = dataclasses.replace(spec, name="others", model="Other", module="others")
        for name, value, message in [
            ("name", "masked_lm", "`model` of every SPEC must be unique"),
            ("model", "BertMaskedLM", "`model` of every SPEC must be unique"),
            ("module", None, "`module` must be the package of the task"),
            ("options", {"dropout": json_schema.FLAG}, "`options` must be the same"),
            ("answers", {"encode": Answers("encode")}, "`answers` must be the same"),
            ("inputs", {"is_query": TaskInput("int32")}, "`inputs` must be the same"),
        ]:
            with pytest.raises(UserError, match=message):
                tasks.register_task(dataclasses.replace(others, **{name: value}))
        assert tasks.specs() == (*before, spec)
    finally:
        tasks._register([])
    assert tasks.spec_of("AgeRegressor") is None
