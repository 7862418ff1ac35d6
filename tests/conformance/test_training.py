"""Every task: the same training from strings, datasets and dictionaries, in parts, frozen, by LoRA.

One model of each task is traced for this module; its weights are set back for every test. What
`TrainingModel` promises is tested in depth in tests/training/test_training_model.py.
"""

import collections
import dataclasses
import gc
import itertools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import DataError, UserError
from bert_tf.models.task_model import TaskModel
from bert_tf.training import (
    AdamWeightDecay,
    GradualUnfreezing,
    SparseCrossentropy,
    freeze_layers,
    reinitialize_top_layers,
)
from bert_tf.training.fit_data import packs_tokens
from tests.conformance.state import State
from tests.conformance.task import CONFIG, LENGTH, ONE_BLOCK, ROWS, WEIGHTS, assert_same, make
from tests.conformance.tasks import TASKS, tasks
from tests.training.fit_arguments import fit_arguments

OPTIONS = {"verbose": 0, "batch_size": ROWS}


def compiled(task, optimizer=None, config=CONFIG, **options):
    """A new model of a task that trains by plain gradients, so that gradients can be compared."""
    model = make(task, config=config)
    optimizer = keras.optimizers.SGD(0.5) if optimizer is None else optimizer
    model.compile(optimizer, **{"run_eagerly": True, **task.compiled, **options})
    return model


def weights_of(model):
    return [variable.numpy() for variable in model.trained_variables()]


def first_loss(logs):
    return float(np.ravel(logs)[0])


@pytest.fixture(scope="module")
def state(name):
    """The task's model for all tests of the task, as it was made."""
    model = compiled(TASKS[name], config=ONE_BLOCK, run_eagerly=False)
    model.optimizer.build(model.trained_variables())
    return State(model)


@pytest.fixture
def traced(state):
    """The same model as it was made, with what earlier tests have traced of it."""
    state.restore()
    return state.model


def tokens_of_batches(batches):
    """Returns the numbers of rows and of tokens of each batch."""
    for tokens, *_ in batches:
        masks = [values.numpy() for name, values in tokens.items() if name.endswith("mask")]
        # The decoder of an encoder-decoder model reads one token less than a target has.
        yield len(masks[0]), sum(mask.sum() for mask in masks) + len(masks[0]) * (len(masks) - 1)


@tasks("training", few=("multiple choice", "encoder-decoder"), on_text=True)
def test_batches_by_tokens_hold_every_row(name, state):
    task = TASKS[name]
    options = {"shuffle": True, "token_budget": 12}
    batches = fit_arguments(state.model, task.text, task.labels, **options)["x"]
    sizes = list(tokens_of_batches(batches))
    assert batches.cardinality() == len(sizes)  # from which a schedule knows its steps
    features, _ = task.rows_of_text()
    assert sum(rows for rows, _ in sizes) == len(features["token_ids"])
    assert len(sizes) > 1 and all(rows == 1 or tokens <= 12 for rows, tokens in sizes)


@tasks("training", few=True, on_text=True)
def test_xla_trains_on_a_token_budget(name):
    """The same losses, metrics and weights as without XLA and without padding."""
    task, dropouts = TASKS[name], ("hidden_dropout_prob", "attention_probs_dropout_prob")
    config = dataclasses.replace(ONE_BLOCK, **dict.fromkeys(dropouts, 0.0))
    options = {"config": config, "optimizer": keras.optimizers.SGD(0.1), "run_eagerly": False}
    model = compiled(task, jit_compile=True, **options)
    is_packed = packs_tokens(model.preprocessor)
    budget = {"token_budget": 40 if is_packed else 80, "shuffle": False}
    data = fit_arguments(model, task.text, task.labels, **budget)["x"]
    assert all(("packed_places" in x) == is_packed for x, *_ in data)
    history, weights = model.fit(data, epochs=3, verbose=0).history, weights_of(model)

    def packed(tokens, *labels):
        return {key: tokens[key] for key in tokens if key != "packed_places"}, *labels

    other = compiled(task, **{**options, "optimizer": keras.optimizers.SGD(0.1)})
    expected = other.fit(data.map(packed), epochs=3, verbose=0).history
    assert_same(history, expected)
    assert_same(weights, weights_of(other))


@tasks("training", few=True, on_text=True)
def test_what_a_call_made_of_its_data_ends_with_it(name, traced):
    """Loops of `fit`, as a search for settings is, and of answers keep nothing."""
    task, objects = TASKS[name], []
    for _ in range(3):
        traced.fit(task.text, task.labels, **OPTIONS)
        task.answers(traced, task.question)
        gc.collect()
        kinds = [type(value) for value in gc.get_objects()]
        objects.append(collections.Counter(k for k in kinds if "bert_tf" in str(k.__module__)))
    assert objects[1] == objects[2]


@tasks("training")
def test_weights_of_classes_that_do_not_exist_are_refused(name, traced):
    task = TASKS[name]
    with pytest.raises(UserError, match="^`class_weight` must"):
        traced.fit(task.features, task.targets, class_weight={"no class": 2.0}, verbose=0)


@tasks("training", few=True)
def test_one_loss_however_the_rows_come(name, traced):
    """`evaluate`: text, datasets of text, dictionaries and datasets of them."""
    task = TASKS[name]
    features, targets = task.rows_of_text()
    expected = traced.evaluate(features, targets, **OPTIONS)
    ways = {}
    if task.trains_on_text:
        ways["text"] = traced.evaluate(task.text, task.labels, **OPTIONS)
    if task.trains_on_text and "datasets of text" not in task.lacks:
        ways["dataset of text"] = traced.evaluate(task.dataset_of_text(), verbose=0)
    for way, received in ways.items():
        np.testing.assert_allclose(received, expected, rtol=1e-5, err_msg=way)
    weighted = first_loss(
        traced.evaluate(task.features, task.targets, sample_weight=WEIGHTS, **OPTIONS)
    )
    received = first_loss(traced.evaluate(task.dataset_of_tokens(), verbose=0))
    np.testing.assert_allclose(received, weighted, rtol=1e-5)
    if task.trains_on_text and task.labels is not None:
        received = traced.evaluate(task.text, task.labels, sample_weight=WEIGHTS, **OPTIONS)
        np.testing.assert_allclose(first_loss(received), weighted, rtol=1e-5)
    assert abs(weighted - first_loss(expected)) > 1e-4  # the weights count


@tasks("training", few=True)
def test_equal_data_are_not_traced_again(name, traced, monkeypatch):
    """Some wrappers of batches are: a few operations. The steps have hundreds."""
    task, created = TASKS[name], []
    create = tf.Graph._create_op_internal

    def counted(self, op_type, *args, **kwargs):
        created.append(op_type)
        return create(self, op_type, *args, **kwargs)

    monkeypatch.setattr(tf.Graph, "_create_op_internal", counted)
    data = {"tokens": (task.features, task.targets)}
    if task.trains_on_text:
        data["text"] = (task.text, task.labels)
    for way, (x, y) in data.items():
        for method in (traced.evaluate, traced.fit):
            method(x, y, **OPTIONS)
            created.clear()
            method(x, y, **OPTIONS)
            assert len(created) < 150, (way, method, len(created))


@tasks("training", few=True)
def test_one_step_however_the_rows_come(name, traced):
    """`fit`: the loss of the step and the weights after it."""
    task = TASKS[name]
    before = State(traced)
    features, targets = task.rows_of_text()
    ways = {"dictionary": lambda: traced.fit(features, targets, shuffle=False, **OPTIONS)}
    if task.trains_on_text:
        ways["text"] = lambda: traced.fit(task.text, task.labels, shuffle=False, **OPTIONS)
    if task.trains_on_text and "datasets of text" not in task.lacks:
        ways["dataset of text"] = lambda: traced.fit(task.dataset_of_text(), verbose=0)
    steps = {}
    for way, fit in ways.items():
        before.restore()
        random.seed(3)  # of the masks
        steps[way] = fit().history["loss"], weights_of(traced)
    if "own masks" in task.lacks:
        del steps["dictionary"]
    (loss, weights), *others = steps.values()
    before.restore()
    assert max(np.abs(a - b).max() for a, b in zip(weights, weights_of(traced))) > 1e-3
    for other_loss, other_weights in others:
        np.testing.assert_allclose(other_loss, loss, rtol=1e-5)
        for one, other in zip(other_weights, weights, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-5)


@tasks("text", "training", few=True)
def test_one_answer_however_the_rows_come(name, traced):
    """`predict`: text, one by one, and dictionaries."""
    task = TASKS[name]
    expected = task.by_hand(traced.predict(task.question_features, batch_size=4, verbose=0))
    assert_same(task.answers(traced, task.question), expected)


@tasks("text", "training")
def test_single_batches_of_text(name, is_full):
    """`train_on_batch`, `test_on_batch` and `predict_on_batch` take what `fit` takes."""
    if name not in ("text classification", "multiple choice") and not is_full:
        return
    task, model = TASKS[name], compiled(TASKS[name])
    data = (task.text, task.labels)
    if task.trains_on_text:
        expected = model.evaluate(*data, **OPTIONS)
        np.testing.assert_allclose(model.test_on_batch(*data), expected, rtol=1e-5)
        before, steps = State(model), []
        for train in (lambda: model.fit(*data, **OPTIONS), lambda: model.train_on_batch(*data)):
            before.restore()
            random.seed(3)  # of the masks
            train()
            steps.append(weights_of(model))
        assert_same(*steps)
    is_other = task.asked_features is not None or "own masks" in task.lacks
    rows = task.question if is_other else task.text
    assert_same(model.predict_on_batch(rows), model.predict(rows, verbose=0))


ID_TASKS = [
    name
    for name, task in TASKS.items()
    if "training" not in task.lacks
    and (isinstance(task.targets, dict) or task.targets.dtype.kind == "i")
]


def with_id(ids, label):
    """A copy of labels or positions `[B, ...]` with another one in row 2."""
    ids = ids.copy()
    ids[(2, *[0] * (ids.ndim - 1))] = label
    return ids


@pytest.mark.parametrize("name", ID_TASKS)
def test_labels_out_of_range_name_their_row(name):
    task, model = TASKS[name], compiled(TASKS[name])
    of_words = dict(task.targets) if isinstance(task.targets, dict) else {}
    names = [key for key, ids in of_words.items() if ids.dtype.kind == "i"] or [None]
    for key, label in itertools.product(names, (-1, 48)):
        if of_words:
            labels = {**of_words, key: with_id(of_words[key], label)}
            rule = rf"`{key}` must be from 0 to below .*: \[{label}\], \[2\]"
        else:
            labels = with_id(task.targets, label)
            rule = rf"must be in \[0, \d+\).*Received: {label} in row 2"
        for method in (model.evaluate, model.train_on_batch):
            with pytest.raises(UserError, match=rule):
                method(task.features, labels)
        held_out = {"validation_data": (task.features, labels)}
        for y, options in ((labels, {}), (task.targets, held_out)):
            with pytest.raises(UserError, match=rule):
                model.fit(task.features, y, shuffle=False, verbose=0, **options)


@pytest.mark.parametrize("name", [n for n in TASKS if "masked_positions" in TASKS[n].features])
def test_masked_positions_out_of_range_name_their_row(name):
    task, model = TASKS[name], compiled(TASKS[name])
    for place in (-1, LENGTH):
        positions = with_id(task.features["masked_positions"], place)
        features = {**task.features, "masked_positions": positions}
        rule = rf"`masked_positions` must be from 0 to below .*: \[{place}\], \[2\]"
        for method in (model.evaluate, model.train_on_batch):
            with pytest.raises(UserError, match=rule):
                method(features, task.targets)
        with pytest.raises(UserError, match=rule):
            model.predict(features, verbose=0)


@pytest.mark.parametrize("name", ["masked LM"], scope="module")
def test_a_graph_names_rows_out_of_range(name, traced):
    task = TASKS[name]
    labels = {**task.targets, "masked_ids": with_id(task.targets["masked_ids"], 48)}
    with pytest.raises(DataError, match=r"^`masked_ids` must be from 0 to below .*\[48\] \[2\]"):
        traced.evaluate(task.features, labels, verbose=0)


@pytest.mark.full
@tasks("text", "training", "datasets of text", "datasets to predict")
def test_one_answer_to_datasets_of_text(name, traced):
    task = TASKS[name]
    dataset = tf.data.Dataset.from_tensor_slices(task.question).batch(4)
    if isinstance(task.question, tuple):
        dataset = dataset.map(lambda *columns: (columns,))
    expected = task.by_hand(traced.predict(task.question_features, batch_size=4, verbose=0))
    assert_same(traced.predict(dataset, verbose=0), expected)


@tasks("training", few=True)
def test_parts_of_a_batch_are_the_batch(name):
    """Gradient accumulation: the same loss, metrics and weights, with weights on the rows."""
    task, steps = TASKS[name], []
    for parts in (1, 4):  # of 1 and of 2 rows
        is_eager = parts == 1 or name != "multiple choice"  # once as a graph
        model = compiled(task, gradient_accumulation_steps=parts, run_eagerly=is_eager)
        logs = model.train_on_batch(task.features, task.targets, WEIGHTS, return_dict=True)
        steps.append((logs, weights_of(model)))
    assert_same(*steps, 1e-5)


# Their epsilon is far above rounding, because a gradient that is zero but for rounding has no sign.
KERAS_OPTIMIZERS = {
    "SGD": (keras.optimizers.SGD, {"momentum": 0.9}, {"global_clipnorm": 1e-2}),
    "Adam": (keras.optimizers.Adam, {"epsilon": 1e-3}, {"clipnorm": 1e-2}),
    "AdamW": (keras.optimizers.AdamW, {"epsilon": 1e-3}, {"global_clipnorm": 1e-2}),
    "RMSprop": (keras.optimizers.RMSprop, {"epsilon": 1e-3}, {"clipvalue": 1e-2}),
    "Nadam": (keras.optimizers.Nadam, {"epsilon": 1e-3}, {"global_clipnorm": 1e-2}),
    "Adafactor": (keras.optimizers.Adafactor, {"epsilon_1": 1e-6}, {"clipnorm": 1e-2}),
}


class _Gradients(keras.optimizers.SGD):
    """Keeps the gradients that a step gives its optimizer."""

    def apply_gradients(self, grads_and_vars):
        self.received = [gradient for gradient, _ in grads_and_vars]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "masked LM" else pytest.mark.full)
        for name, task in TASKS.items()
        if "training" not in task.lacks
    ],
)
def test_optimizers_of_keras_take_the_step_of_the_whole_batch(name):
    """All tables too: Keras squares, and clips, each row of a sparse gradient by itself."""
    task, gradients = TASKS[name], []
    for parts in (1, 2):
        model = compiled(task, _Gradients(), ONE_BLOCK, gradient_accumulation_steps=parts)
        model.train_on_batch(task.features, task.targets)
        gradients.append(model.optimizer.received)
    for optimizer_name, (kind, options, clipping) in KERAS_OPTIMIZERS.items():
        for own in (options, {**options, **clipping}):
            steps = []
            for of_parts in gradients:
                weights = [tf.Variable(tf.zeros(g.shape)) for g in of_parts if g is not None]
                pairs = zip((g for g in of_parts if g is not None), weights)
                kind(0.01, **own).apply_gradients(list(pairs))
                steps.append(np.concatenate([np.ravel(weight) for weight in weights]))
            tolerance = 1e-4 * np.abs(steps[1]).max()
            about = f"{optimizer_name} {own}"
            np.testing.assert_allclose(*steps, rtol=0, atol=tolerance, err_msg=about)


XLA_IN_PARTS = ("pre-training", "question answering")


@pytest.mark.full
@tasks("training")
def test_xla_takes_the_same_step(name):
    task, steps = TASKS[name], []
    ways = [{"jit_compile": False}, {"jit_compile": True}]
    if name in XLA_IN_PARTS:
        ways.append({"jit_compile": True, "gradient_accumulation_steps": 2})
    for options in ways:
        model = compiled(task, run_eagerly=False, **options)
        loss = model.fit(task.features, task.targets, sample_weight=WEIGHTS, **OPTIONS).history
        steps.append((loss["loss"], weights_of(model)))
        if "text" not in task.lacks:
            expected = task.by_hand(model(task.question_features))
            assert_same(task.answers(model, task.question), expected, 1e-4)
    without_xla, *with_xla = steps
    for step in with_xla:
        assert_same(step, without_xla, 1e-4)


@tasks("training")
def test_a_pooler_that_is_not_read_is_not_trained(name, traced):
    """The backbone is not changed: another model of it may read the pooler."""
    pooler = traced.backbone.pooler
    assert all(weight.trainable for weight in pooler.weights)
    before = [weight.numpy() for weight in pooler.weights]
    traced.fit(TASKS[name].features, TASKS[name].targets, **OPTIONS)
    has_changed = not all(map(np.array_equal, before, pooler.weights))
    assert has_changed == traced.uses_pooler


def parts_of(model):
    """Embeddings, blocks and all else that trains, as one array each."""
    backbone = model.backbone
    parts = {
        "embeddings": backbone.embeddings.variables,
        **{f"block {n}": block.variables for n, block in enumerate(backbone.encoder.blocks)},
    }
    known = {id(variable) for variables in parts.values() for variable in variables}
    parts["head"] = [v for v in model.trained_variables() if id(v) not in known]
    return {
        name: np.concatenate([np.ravel(v.numpy()) for v in variables if "float" in v.dtype])
        for name, variables in parts.items()
        if variables
    }


def changed(before, after):
    return {name for name in before if not np.array_equal(before[name], after[name])}


@tasks("training", few=True)
def test_frozen_and_opened_from_the_top(name):
    task = TASKS[name]
    model = make(task)
    before = parts_of(model)
    reinitialize_top_layers(model, 1, seed=3)
    assert changed(before, parts_of(model)) - {"head"} == {"block 1"}  # the pooler is drawn too
    freeze_layers(model, 2)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True, **task.compiled)
    before = parts_of(model)
    model.fit(task.features, task.targets, **OPTIONS)
    assert changed(before, parts_of(model)) == {"head"}
    model.compile(  # the optimizer learns of the blocks when they are opened
        AdamWeightDecay(1e-3, layer_decay=0.9),
        gradient_accumulation_steps=2,
        run_eagerly=True,
        **task.compiled,
    )
    before = parts_of(model)
    callbacks = [GradualUnfreezing()]
    model.fit(task.features, task.targets, epochs=2, callbacks=callbacks, **OPTIONS)
    assert changed(before, parts_of(model)) == {"block 1", "head"}


@tasks("training", few=True)
def test_lora(name, tmp_path):
    """Only the additions and the head train; saved alone; merged, the outputs are the same."""
    task = TASKS[name]
    model = make(task)
    plain = model(task.features)
    model.enable_lora(2, alpha=4.0, target_modules=("query_key_value", "output_dense"))
    assert_same(model(task.features), plain)
    model.compile(keras.optimizers.SGD(0.5), run_eagerly=True, **task.compiled)
    base = {id(v): v.numpy() for v in model.backbone.variables if not v.name.startswith("lora")}
    added = [v for v in model.backbone.variables if v.name.startswith("lora")]
    assert len(added) == 2 * 2 * 2  # blocks, layers, A and B
    before, head = [v.numpy() for v in added], parts_of(model)["head"]
    model.fit(task.features, task.targets, epochs=2, **OPTIONS)
    assert all(np.any(v.numpy() != old) for v, old in zip(added, before))
    assert np.any(parts_of(model)["head"] != head)
    for variable in model.backbone.variables:
        if id(variable) in base:
            np.testing.assert_array_equal(variable.numpy(), base[id(variable)])
    trained = model(task.features)
    model.save_lora_weights(tmp_path / "lora.safetensors")
    other = make(task)
    other.load_lora_weights(tmp_path / "lora.safetensors")
    assert_same(other(task.features), trained)
    with pytest.raises(UserError, match="merge_lora"):
        model.save_pretrained(tmp_path / "model")
    model.save(tmp_path / "model.keras")
    assert_same(keras.models.load_model(tmp_path / "model.keras")(task.features), trained)
    model.merge_lora()
    assert not any(v.name.startswith("lora") for v in model.variables)
    assert_same(model(task.features), trained)
    model.save_pretrained(tmp_path / "model", format="auto")
    assert_same(task.kind.from_pretrained(tmp_path / "model")(task.features), trained)


@tasks("training", "other losses")
def test_losses_on_classes(name):
    """`SparseCrossentropy` is the default loss; with smoothing it is another one."""
    task = TASKS[name]
    model, losses = make(task), []
    for loss in ("auto", SparseCrossentropy(), SparseCrossentropy(0.2)):
        model.compile("sgd", **{**task.compiled, "loss": loss}, run_eagerly=True)
        losses.append(first_loss(model.test_on_batch(task.features, task.targets, WEIGHTS)))
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert np.isfinite(losses[2]) and abs(losses[2] - losses[0]) > 1e-3


@tasks("training", "other losses")
def test_losses_of_keras_take_logits_or_are_refused(name):
    """Their default is probabilities, which no model returns."""
    task = TASKS[name]
    model, losses = make(task), []
    options = {"run_eagerly": True, **task.compiled}
    with pytest.raises(UserError, match="`loss` must"):
        model.compile("sgd", **{**options, "loss": keras.losses.SparseCategoricalCrossentropy()})
    for loss in ("auto", "sparse_categorical_crossentropy"):
        try:
            model.compile("sgd", **{**options, "loss": loss})
        except UserError as error:
            assert "bert_tf.training.SparseCrossentropy" in str(error)
            return
        losses.append(first_loss(model.test_on_batch(task.features, task.targets, WEIGHTS)))
    np.testing.assert_allclose(*losses, rtol=1e-5)


OPERATIONS = {
    "text": lambda model, task: model.predict(["good film"], verbose=0),
    "training": lambda model, task: model.fit(task.features, verbose=0),
    "training on text": lambda model, task: model.fit(task.text, [[0]] * ROWS, verbose=0),
    "datasets to predict": lambda model, task: model.predict(task.dataset_of_text(), verbose=0),
    "other losses": lambda model, task: model.compile(
        **{**task.compiled, "loss": SparseCrossentropy()}
    ),
}


@pytest.mark.parametrize(
    "name, lack",
    [
        (name, lack)
        for name, task in TASKS.items()
        for lack in OPERATIONS
        if lack in task.lacks and task.lacks[lack].error
    ],
)
def test_what_a_task_lacks_is_an_error(name, lack):
    task, model = TASKS[name], make(TASKS[name])
    model.compile("sgd", **task.compiled)
    with pytest.raises((UserError, ValueError), match=task.lacks[lack].error):
        OPERATIONS[lack](model, task)


@tasks("training", few=True)
def test_fits_without_compile(name, monkeypatch):
    """With the optimizer, the loss and the metrics of the task, over the steps of the run."""
    task = TASKS[name]
    if not issubclass(task.kind, TaskModel):
        return
    model = make(task)
    compile_model = model.compile
    monkeypatch.setattr(
        model, "compile", lambda **options: compile_model(run_eagerly=True, **options)
    )
    labels = task.targets
    if "objective" in task.compiled:  # else they may be classes or scores
        with pytest.raises(UserError, match="objective"):
            model.fit(task.features, labels)
        labels = None
    before = weights_of(model)
    history = model.fit(task.features, labels, **OPTIONS).history
    assert model.optimizer.learning_rate == 0.0  # at the end of the run
    assert max(np.abs(a - b).max() for a, b in zip(weights_of(model), before)) > 0
    assert np.isfinite(history["loss"]).all()
    assert set(history) - {"loss", "gradient_norm"}  # a metric
