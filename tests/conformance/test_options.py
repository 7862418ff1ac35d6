"""Every task: what is set in a model, or in its preprocessor, counts from then on or is refused."""

import dataclasses

import keras
import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.inputs.columns import TextColumns, object_array
from bert_tf.tasks.text_classification.preprocessor import TextClassificationPreprocessor
from bert_tf.training.model_options import fixed_names, option_names
from tests.conformance.task import CONFIG, assert_same, make, shared, tokenizer
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
    "threshold": 0.4,
    "tokenizer": bert_tf.BertTokenizer(tokenizer().vocabulary, lowercase=True),
}


def settings(task, model):
    """The options of a model that may be set -> values that differ from its own."""
    values = {**OTHER_VALUES, "labels": list(map(str, range(getattr(model, "num_classes", 0))))}
    for other in TASKS.values():
        values |= other.saved if other.kind is task.kind else {}
    names = option_names(task.kind) - fixed_names(task.kind) - {"preprocessor"}
    names -= {"tokenizer"} if "text" in task.lacks else set()
    names -= {"max_length"} if model.preprocessor is None else set()
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


def test_a_model_without_text_has_no_options_of_text():
    model = bert_tf.BertPretrainer(bert_tf.BertBackbone(CONFIG))
    for name in ("tokenizer", "max_length"):
        assert getattr(model, name) is None
        with pytest.raises(UserError, match=f"`{name}` must be set on a model that reads texts"):
            setattr(model, name, 8)


@tasks()
def test_options_that_are_refused(name):
    task, model = TASKS[name], shared(TASKS[name])
    fixed = option_names(task.kind) & fixed_names(task.kind)
    assert "backbone" in fixed
    for option in fixed:
        before = getattr(model, option)
        with pytest.raises(UserError, match=f"^`{option}` must be an argument"):
            setattr(model, option, before)
    if model.preprocessor is None:
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
    options, preprocessor = settings(task, model), model.preprocessor
    fields = {field.name for field in dataclasses.fields(preprocessor)}
    assert {"tokenizer", "max_length"} <= fields & set(options)
    for field in [*options, *sorted(fields - {*options}), "a_typing_error"]:
        if field in fields & {*options}:
            setattr(preprocessor, field, options[field])
            value = getattr(model, field)
            assert getattr(preprocessor, field) == value
            assert value == options[field] or field == "tokenizer"
        elif field not in options:
            with pytest.raises(UserError, match=f"must be one of .*Received: {field}="):
                setattr(preprocessor, field, 1)
    assert model.preprocessor is preprocessor


@tasks("text", few=True)
def test_another_preprocessor(name):
    """A preprocessor is given to a model, or set in it, and holds what it was made with."""
    task, model = TASKS[name], make(TASKS[name])
    settings_of_other = make(task, max_length=12).preprocessor.get_config()
    kind = type(model.preprocessor)
    own = {n: v for n, v in task.options.items() if n not in kind.arguments()}
    given = task.kind(model.backbone, preprocessor=kind.from_config(settings_of_other), **own)
    assert given.max_length == 12 and given.preprocessor.max_sequence_length == 12
    with pytest.raises(UserError, match="`max_length` must be left out with a `preprocessor`"):
        task.kind(model.backbone, max_length=13, preprocessor=given.preprocessor, **own)
    expected = make(task, max_length=12)
    expected.set_weights(model.get_weights())
    model.preprocessor = given.preprocessor
    assert model.preprocessor is given.preprocessor and model.max_length == 12
    assert_same(answers(task, model), answers(task, expected))
    model.preprocessor.max_length = 13  # in both models
    assert given.max_length == 13 == model.get_config()["max_length"]
    with pytest.raises(UserError, match=f"`preprocessor` must be a {kind.__name__}"):
        model.preprocessor = object()
    assert model.max_length == 13


@tasks()
def test_preprocessor_of_none(name):
    """`preprocessor=None`, keras-hub's way, is a model without a tokenizer."""
    task, model = TASKS[name], shared(TASKS[name])
    if model.preprocessor is None:
        return
    options = {**task.options, "preprocessor": None}
    assert task.kind(model.backbone, **options).tokenizer is None
    with pytest.raises(
        UserError, match="`tokenizer` must be None with `preprocessor=None`|must be"
    ):
        task.kind(model.backbone, tokenizer=tokenizer(), **options)


@keras.saving.register_keras_serializable(package="tests")
class Shouting(TextClassificationPreprocessor):
    """Reads all texts in capitals."""

    def read_columns(self, x):
        return TextColumns(
            object_array([text.upper() for text in column]) for column in super().read_columns(x)
        )


def test_a_preprocessor_of_ones_own_is_saved(tmp_path):
    task = TASKS["text classification"]
    model = make(task)
    model.preprocessor = Shouting.from_config(model.preprocessor.get_config())
    shouted = model.predict(["a good film"], verbose=0)
    model.save(tmp_path / "model.keras")
    opened = keras.saving.load_model(tmp_path / "model.keras")
    assert type(opened.preprocessor) is Shouting
    assert_same(opened.predict(["a good film"], verbose=0), shouted)
    assert_same(opened.predict(["A GOOD FILM"], verbose=0), shouted)
    model.preprocessor = None
    with pytest.raises(UserError, match="made without a tokenizer"):
        model.predict(["a good film"], verbose=0)


def test_a_preprocessor_that_does_not_fit():
    """One for other classes is refused, and the one before stays."""
    model = make(TASKS["text classification"])
    before = model.preprocessor
    with pytest.raises(UserError, match="num_classes` must be 2"):
        model.preprocessor = TextClassificationPreprocessor(tokenizer(), num_classes=5)
    with pytest.raises(UserError, match="max_length"):
        model.preprocessor = TextClassificationPreprocessor(tokenizer(), max_length=9999)
    assert model.preprocessor is before


@tasks("text", few=True)
def test_arguments_of_predict_that_no_task_reads(name):
    """Windows of texts are pooled to one output, or refused."""
    task, model = TASKS[name], shared(TASKS[name])
    with pytest.raises(UserError, match="window_pooling"):
        model.predict(task.question, window_pooling="median", verbose=0)
    if model.spec.token_axis is not None:
        with pytest.raises(UserError, match="must be .*window_stride=|be lists of words"):
            model.predict(task.question, window_stride=3, verbose=0)


@tasks("datasets of text", few=True)
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
