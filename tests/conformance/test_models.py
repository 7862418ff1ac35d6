"""Every task: built, its answers, its configuration, dropout, precision, 8-bit integers."""

import dataclasses
import inspect
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from tests.conformance.task import CONFIG, ONE_BLOCK, ROWS, WEIGHTS, assert_same, make, shared
from tests.conformance.tasks import TASKS, tasks


def numbers(structure) -> np.ndarray:
    """All numbers of a nest of tensors, in float64."""
    return np.concatenate([np.float64(values).ravel() for values in tf.nest.flatten(structure)])


@tasks()
def test_built(name):
    """It has its weights before its first call, and a row's outputs do not depend on the others."""
    task, model = TASKS[name], make(TASKS[name])
    assert model.built
    paths = [weight.path for weight in model.weights]
    outputs = model(task.features)
    assert paths == [weight.path for weight in model.weights] and len(set(paths)) == len(paths)
    for values in tf.nest.flatten(outputs):
        assert values.dtype == tf.float32 and values.shape[0] == ROWS
        assert np.isfinite(values).all() and np.std(values) > 1e-3
    for row in (0, ROWS - 1):
        one = model({key: values[row : row + 1] for key, values in task.features.items()})
        assert_same(one, tf.nest.map_structure(lambda v: v[row : row + 1], outputs))


@tasks()
def test_summary_shows_the_shape_of_each_layer(name):
    lines = []
    shared(TASKS[name]).summary(print_fn=lambda line, **_: lines.append(line))
    assert "?" not in "".join(lines)


@tasks(few=True)
def test_tokens_by_another_name_are_refused(name):
    task, model = TASKS[name], shared(TASKS[name])
    tokens = {**task.features, "input_ids": task.features["token_ids"]}
    del tokens["token_ids"]
    with pytest.raises(UserError, match="`input_ids` is `token_ids`"):
        model(tokens)


@tasks("text")
def test_an_empty_list_has_empty_answers(name):
    outputs = shared(TASKS[name]).predict([], verbose=0)
    logits = outputs["logits"] if isinstance(outputs, dict) else outputs
    assert logits.shape[0] == 0


@tasks("text")
def test_an_empty_tuple_is_refused(name):
    """It is neither the columns of texts nor an example."""
    model = shared(TASKS[name])
    for method in (model.predict, model.predict_on_batch, model.fit, model.evaluate):
        with pytest.raises(UserError, match=r"must be texts.*Received: x=\(\)"):
            method(())


@tasks("text")
def test_answers_are_those_of_the_outputs(name):
    """Raw text, however it is batched, is answered by what the token dictionary gives."""
    task, model = TASKS[name], shared(TASKS[name])
    expected = task.by_hand(model(task.question_features))
    assert_same(task.answers(model, task.question), expected)
    if name != "features":  # their batches of several lengths are no array
        assert_same(task.answers(model, task.question, token_budget=16), expected)


@tasks()
def test_configuration_comes_back(name):
    task = TASKS[name]
    options = {**task.options, **task.saved}
    model = shared(task, saved=True)
    config = model.get_config()
    json.dumps(config)
    for argument in inspect.signature(task.kind).parameters:
        if argument != "kwargs":
            assert hasattr(model, argument) and argument in config, argument
    for argument, value in options.items():
        assert config[argument] == value == getattr(model, argument), argument
    again = task.kind.from_config(config)
    assert again.get_config() == config
    again.set_weights(model.get_weights())
    assert_same(again(task.features), model(task.features), 0.0)


@tasks("training", few=True)
def test_dropout_is_for_training(name):
    config = dataclasses.replace(CONFIG, hidden_dropout_prob=0.4, attention_probs_dropout_prob=0.4)
    task = TASKS[name]
    model, without = make(task, config=config), make(task)
    without.set_weights([w for w in model.get_weights() if w.dtype == np.float32])
    for _ in range(2):
        assert_same(model(task.features), without(task.features))
    one, other = (numbers(model(task.features, training=True)) for _ in range(2))
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", pytest.param("mixed_float16", marks=pytest.mark.full)]
)
@tasks("training", few=True)
def test_mixed_precision(name, policy):
    """Outputs and gradients are float32's to the digits that there are; weights stay float32."""
    task = TASKS[name]
    steps = []
    for dtype in (None, policy):
        model = make(task, dtype=dtype)
        optimizer = keras.optimizers.SGD(1.0)
        if dtype == "mixed_float16":
            optimizer = keras.optimizers.LossScaleOptimizer(optimizer, initial_scale=16.0)
        model.compile(optimizer, run_eagerly=True, **task.compiled)
        before = [variable.numpy() for variable in model.trained_variables()]
        outputs = numbers(model(task.features))
        loss = model.train_on_batch(task.features, task.targets, WEIGHTS)
        after = [variable.numpy() for variable in model.trained_variables()]
        assert all(weight.dtype == np.float32 for weight in after)
        steps.append((outputs, np.ravel(loss)[:1], numbers(after) - numbers(before)))
    for one, other in zip(*steps):
        cosine = one @ other / np.sqrt((one @ one) * (other @ other))
        assert 0.99 < cosine < 1.0 + 1e-9
        np.testing.assert_allclose(np.linalg.norm(one), np.linalg.norm(other), rtol=0.05)
    for values in tf.nest.flatten(model(task.features)):
        assert values.dtype == tf.float32
    states = model.backbone({"token_ids": np.ones([1, 3], np.int32)})["sequence_output"]
    assert states.dtype == policy.removeprefix("mixed_")


@tasks()
def test_quantized(name, tmp_path):
    """8-bit integers give nearly the same, are no longer trained, and are saved and opened."""
    task, model = TASKS[name], make(TASKS[name], config=ONE_BLOCK)
    expected = numbers(model(task.features))
    model.quantize("int8")
    quantized = numbers(model(task.features))
    assert np.abs(quantized - expected).max() > 0.0
    assert np.corrcoef(quantized, expected)[0, 1] > 0.99
    if "training" not in task.lacks:
        model.compile("sgd", run_eagerly=True, **task.compiled)
        with pytest.raises(UserError, match="quantized"):
            model.fit(task.features, task.targets, sample_weight=WEIGHTS, verbose=0)
    model.save_pretrained(tmp_path, format="bert_tf")
    opened = task.kind.from_pretrained(tmp_path)
    assert_same(numbers(opened(task.features)), quantized, 0.0)
    with pytest.raises(UserError, match="quantized"):
        model.save_pretrained(tmp_path / "huggingface")
