"""Every task: what is set in a model, or in its preprocessor, counts from then on or is refused."""

import dataclasses
import inspect

import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.models.task_model import TaskModel
from bert_tf.training.model_options import fixed_names, option_names
from tests.conformance.task import assert_same, make, tokenizer
from tests.conformance.tasks import TASKS, tasks

# A value of each option that a task's `saved` does not have.
OTHER_VALUES = {
    "max_length": 12,
    "labels": ["this", "that"],
    "doc_stride": 2,
    "max_query_length": 3,
    "normalize": False,
    "truncate_dim": 4,
    "prompts": {"query": "the "},
    "default_prompt_name": "query",
    "generation_config": {"max_new_tokens": 3},
    "decoder_start_token_id": 5,
    "eos_token_id": 6,
    "tokenizer": bert_tf.BertTokenizer(tokenizer().vocabulary, lowercase=True),
}


def settings(task, model):
    """The options of a model that may be set -> values that differ from its own."""
    values = {**OTHER_VALUES, "labels": list(map(str, range(getattr(model, "num_classes", 0))))}
    for other in TASKS.values():
        values |= other.saved if other.kind is task.kind else {}
    names = option_names(task.kind) - fixed_names(task.kind)
    names -= {"tokenizer"} if "text" in task.lacks else set()
    return {name: values[name] for name in sorted(names, key=list(values).index)}


def answers(task, model):
    model.run_eagerly = True
    return model(task.features) if "text" in task.lacks else task.answers(model, task.question)


@tasks(few=True)
def test_options_that_are_set(name):
    """Those that may be set make the model that the constructor makes with them."""
    task, model = TASKS[name], make(TASKS[name])
    options = settings(task, model)
    for option, value in options.items():
        assert getattr(model, option) != value, option
        setattr(model, option, value)
    expected = make(task, **options)
    expected.set_weights(model.get_weights())
    assert_same(model(task.features), expected(task.features))
    assert_same(answers(task, model), answers(task, expected))
    configs = [{n: getattr(m, n) for n in options} for m in (model, expected)]
    assert configs[0] == configs[1]


@tasks()
def test_options_that_are_refused(name):
    task, model = TASKS[name], make(TASKS[name])
    fixed = option_names(task.kind) & fixed_names(task.kind)
    assert "backbone" in fixed
    for option in fixed:
        before = getattr(model, option)
        with pytest.raises(UserError, match=f"^`{option}` must be an argument"):
            setattr(model, option, before)
    if not isinstance(model, TaskModel):
        return
    for length in (2, 1000):
        before = model.max_length
        with pytest.raises(UserError, match="max_length"):
            model.max_length = length
        assert model.max_length == before


@tasks("text")
def test_fields_of_the_preprocessor(name):
    """A field that is an option of the model is set in the model; the others are refused."""
    task, model = TASKS[name], make(TASKS[name])
    options = settings(task, model)
    fields = {field.name for field in dataclasses.fields(model.preprocessor)}
    assert {"tokenizer", "max_length"} <= fields & set(options)
    for field in sorted(fields | {"a_typing_error"}):
        preprocessor = model.preprocessor
        if field in options:
            setattr(preprocessor, field, options[field])
            value = getattr(model, field)
            assert getattr(preprocessor, field) == getattr(model.preprocessor, field) == value
            assert value == options[field] or field == "tokenizer"
        else:
            with pytest.raises(UserError, match=f"must be one of .*Received: {field}="):
                setattr(preprocessor, field, 1)


@tasks()
def test_preprocessor_of_none(name):
    """`preprocessor=None`, keras-hub's way, is a model without a tokenizer; others are refused."""
    task, model = TASKS[name], make(TASKS[name])
    if not isinstance(model, TaskModel):
        return
    without = make(task, tokenizer=None, preprocessor=None)
    assert without.tokenizer is None
    for options in (
        {"preprocessor": None},
        {"preprocessor": model.preprocessor, "tokenizer": None},
    ):
        with pytest.raises(UserError, match="`preprocessor` must be left out, .*`tokenizer`, `max"):
            task.kind(model.backbone, **{"tokenizer": tokenizer(), **task.options, **options})
    with pytest.raises(UserError, match="`preprocessor` must be left out, .*`tokenizer`, `max"):
        model.preprocessor = model.preprocessor
    assert "preprocessor" not in inspect.signature(task.kind).parameters


@tasks("text", few=True)
def test_arguments_of_predict_that_no_task_reads(name):
    """Windows of texts are pooled to one output, or refused."""
    task, model = TASKS[name], make(TASKS[name])
    model.run_eagerly = True
    with pytest.raises(UserError, match="window_pooling"):
        model.predict(task.question, window_pooling="median", verbose=0)
    if model.output_token_axis is not None:
        with pytest.raises(UserError, match="must be .*window_stride=|be lists of words"):
            model.predict(task.question, window_stride=3, verbose=0)


@tasks("datasets of text")
def test_labels_beside_a_dataset(name):
    """A dataset of text has its own labels and weights."""
    task, model = TASKS[name], make(TASKS[name])
    if not task.trains_on_text:
        return
    model.compile("sgd", run_eagerly=True, **task.compiled)
    data = task.dataset_of_text()
    for arguments in ({"y": [1] * 6}, {"sample_weight": [1.0] * 6}):
        for call in (model.fit, model.evaluate):
            with pytest.raises(UserError, match=f"`{next(iter(arguments))}` must be None"):
                call(data, verbose=0, **arguments)
