"""What test_pipeline_stages.py runs in a process of its own: four stages need four CPU devices."""

import contextlib
import dataclasses
import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import training
from bert_tf.errors import UserError
from bert_tf.layers import pipeline
from bert_tf.layers.pipeline import PipelinePlacement
from bert_tf.training import pipelined_step
from bert_tf.training.checkpointing.training_checkpoint import state_variables
from bert_tf.training.distribution import make_pipeline_devices
from tests.conformance.task import CONFIG, TEXTS, VOCABULARY, assert_same, make, tokenizer
from tests.conformance.tasks import TASKS
from tests.training.processes import send_results

PARTS = 3
# Of a batch of 7 rows and of one of 2, which has fewer rows than parts.
ROWS, LENGTH, PLACES, BATCH = 9, 12, 3, 7
WITH_DROPOUT = dataclasses.replace(
    CONFIG, num_hidden_layers=4, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.2
)
# Where a weight is used in two stages, its gradient is the sum of all parts of each stage.
SUMS_IN_ANOTHER_ORDER = ("encoder-decoder with shared weights",)
TRACED = "traced "  # before the name of a check whose steps are traced, as users train
TASK = "task: "  # before the name of a task


def examples():
    """Rows of different lengths for pre-training; every other one has its padding on the left."""
    rng = np.random.default_rng(2)
    lengths = rng.integers(4, LENGTH + 1, [ROWS, 1])
    mask = np.arange(LENGTH) < lengths
    x = {
        "token_ids": rng.integers(5, len(VOCABULARY), mask.shape).astype(np.int32) * mask,
        "padding_mask": mask,
        "masked_positions": rng.integers(0, lengths, [ROWS, PLACES]).astype(np.int32),
    }
    for values in (x["token_ids"], x["padding_mask"]):
        values[::2] = values[::2, ::-1].copy()
    x["masked_positions"][::2] = LENGTH - 1 - x["masked_positions"][::2]
    y = {
        "masked_ids": rng.integers(5, len(VOCABULARY), [ROWS, PLACES]).astype(np.int32),
        "masked_weights": (rng.random([ROWS, PLACES]) < 0.7).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, ROWS).astype(np.int32),
    }
    return x, y


class _Losses(keras.callbacks.Callback):
    """Keeps the loss of each step: the metrics are reset before it."""

    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append(dict(logs))


def optimizer():
    return training.AdamWeightDecay(1e-2, clip_norm=0.5)  # the norm of all stages clips


def state(model):
    """The values of all variables of a model and its optimizer, but for the metrics'."""
    return [value.numpy() for value in state_variables(model).values()]


def pretrainer(blocks=2, dtype=None, **options):
    """A `BertPretrainer` with dropout; the options are the backbone's."""
    config = dataclasses.replace(WITH_DROPOUT, num_hidden_layers=blocks)
    return bert_tf.BertPretrainer(bert_tf.BertBackbone(config, dtype=dtype, **options), dtype=dtype)


def trained(stages, traced, epochs=None, make_model=pretrainer, data=None, **options):
    """Logs of each step, the state after all, and the model, on as many devices as stages.

    Args:
        stages: Their number; None: a model without stages.
        traced: Whether the steps are traced.
        epochs: Of two steps each. None: two if they are traced, else, as that takes longer, one.
        make_model: A function that returns the model.
        data: What to fit. None: `examples`.
        **options: Of `make_model`.
    """
    keras.utils.set_random_seed(4)
    model = make_model(**options)
    if stages is not None:
        training.pipeline_stages(model, DEVICES[:stages])
    model.compile(optimizer(), gradient_accumulation_steps=PARTS, run_eagerly=not traced)
    if data is None:
        data = (tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH),)
    losses = _Losses()
    epochs = epochs or (2 if traced else 1)
    model.fit(*data, verbose=0, epochs=epochs, callbacks=[losses], shuffle=False)
    return losses.logs, state(model), model


DEVICES = [f"CPU:{index}" for index in range(4)]


def assert_same_bits(received, expected):
    assert received[0] == expected[0] and len(received[0]) > 1  # logs
    for one, other in zip(received[1], expected[1], strict=True):
        np.testing.assert_array_equal(one, other)


@functools.cache
def _on_one_device(traced, blocks):
    return trained(None, traced, blocks=blocks)[:2]


def _equal(traced, stages, **options):
    assert_same_bits(trained(stages, traced, **options), trained(None, traced, **options))


def _equal_to_plain(traced, stages, blocks, **options):
    """Recomputing does not change the numbers of one device either."""
    received = trained(stages, traced, blocks=blocks, **options)
    assert_same_bits(received, _on_one_device(traced, blocks))


def _texts(traced):
    """Text classification on raw text, whose last batch has fewer rows than parts."""

    def classifier():
        return bert_tf.BertTextClassifier(pretrainer().backbone, 2, tokenizer=tokenizer())

    data = (TEXTS + ["film"], [0, 1, 1, 0, 1, 0, 1], 5)
    _equal(traced, 2, make_model=classifier, data=data)


def _frozen(traced):
    """The lowest stages have nothing to train."""

    def frozen():
        model = pretrainer(blocks=4)
        training.freeze_layers(model, num_layers=3)
        return model

    _equal(traced, 4, make_model=frozen)


def _placed(traced):
    """Variables and slots are on the devices of their stages."""
    del traced
    model = pretrainer(blocks=4)
    training.pipeline_stages(model, DEVICES[:3])
    model.compile(optimizer())
    stages = {"embeddings": 0, "layer_0": 0, "layer_1": 0, "layer_2": 1, "layer_3": 2}
    for variable in state_variables(model).values():
        if len(variable.shape) == 0 or "seed_generator" in variable.path:
            continue  # the scalars of the optimizer; the path of a seed does not have its layer
        stage = next((stage for name, stage in stages.items() if name in variable.path), 2)
        assert variable.value.device.endswith(f"CPU:{stage}"), variable.path


def _predicting(traced):
    """`evaluate` and `predict` give the numbers of one device."""
    model, one = pretrainer(), pretrainer()
    training.pipeline_stages(model, DEVICES[:2])
    for each in (model, one):
        each.compile(optimizer(), run_eagerly=not traced)
    for variable, other in zip(one.weights, model.weights, strict=True):
        variable.assign(other)
    x, y = examples()
    logs = [each.evaluate(x, y, verbose=0, return_dict=True) for each in (model, one)]
    assert logs[0] == logs[1]
    predicted = [each.predict(x, verbose=0)["masked_logits"] for each in (model, one)]
    np.testing.assert_array_equal(*predicted)


def _resumed(traced, directory):
    """A checkpoint of a pipeline is resumed without one, and the other way round."""
    keras.utils.set_random_seed(4)
    data = tf.data.Dataset.from_tensor_slices(examples()).batch(BATCH)

    def compiled(stages):
        model = pretrainer(blocks=4)
        if stages:
            training.pipeline_stages(model, DEVICES[:stages])
        model.compile(optimizer(), gradient_accumulation_steps=PARTS, run_eagerly=not traced)
        return model

    expected = trained(None, traced, epochs=3, blocks=4)[1]
    model = trained(2, traced, epochs=1, blocks=4)[2]
    for step, stages in ((2, None), (4, 4), (6, 2)):
        save = training.TrainingCheckpoint(directory, save_every=100)
        save.set_model(model)
        save.step = step
        save.save()
        model = compiled(stages)
        assert training.TrainingCheckpoint(directory).restore(model) == step
        if step < 6:
            model.fit(data, verbose=0, shuffle=False)
    for one, other in zip(state(model), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def _saved(traced, directory):
    """Files do not contain the placement."""
    del traced
    keras.utils.set_random_seed(4)
    model = pretrainer()
    before = model.get_config()
    training.pipeline_stages(model, DEVICES[:2])
    assert model.get_config() == before
    model.save_pretrained(f"{directory}/saved")
    loaded = bert_tf.BertPretrainer.from_pretrained(f"{directory}/saved")
    assert loaded.pipeline_placement is None
    for one, other in zip(loaded.weights, model.weights, strict=True):
        if "seed_generator" not in one.path:
            np.testing.assert_array_equal(one.numpy(), other.numpy())
        assert one.value.device.endswith("CPU:0")


def _schedule(traced):
    """No stage keeps more parts than it must: k - i, counted from 0; the gradients add up."""
    kept, most = {}, {}

    class Counted(pipelined_step._Part):
        @contextlib.contextmanager
        def blocks_of(self, stage):
            kept.setdefault(stage, set()).add(self)
            most[stage] = max(most.get(stage, 0), len(kept[stage]))
            with super().blocks_of(stage):
                yield

        def backward(self, stage, variables):
            kept[stage].remove(self)
            return super().backward(stage, variables)

    placement = PipelinePlacement(tuple(DEVICES), (0, 1, 2, 3))
    variables = [keras.Variable(float(block + 2)) for block in range(4)]

    def losses(part):
        x = tf.constant(part + 1.0)
        for block, variable in enumerate(variables):
            with pipeline.at_block(block):
                x = pipeline.received(x, block - 1) * variable if block else x * variable
        return x, x

    def step():
        return pipelined_step.pipelined_gradients(placement, 6, losses, variables)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipelined_step, "_Part", Counted)
        total, gradients = tf.function(step)() if traced else step()
    assert most == {0: 4, 1: 3, 2: 2, 3: 1}
    product = 21.0 * 2 * 3 * 4 * 5
    assert float(total) == product
    assert [float(gradient) for gradient in gradients] == [product / each for each in range(2, 6)]


def _refused(traced):
    del traced

    stages = training.pipeline_stages
    model = pretrainer()
    for devices, words in (
        (DEVICES[:3], "must be 1 to 2, the number of blocks. Received: 3"),
        ([], "must be 1 to 2"),
        (["CPU:1", "/device:CPU:1"], "must be different"),
        (["CPU:0", "GPU:7"], "must be of CPU:0, CPU:1, CPU:2, CPU:3. Received: 'GPU:7'"),
    ):
        with pytest.raises(UserError, match=words):
            stages(model, devices)
    for sizes in ([2], [0, 2], [1, 2]):
        with pytest.raises(UserError, match="`blocks_per_stage` must be 2 numbers"):
            stages(model, DEVICES[:2], blocks_per_stage=sizes)
    with pytest.raises(UserError, match="must be the model of a task"):
        stages(model.backbone, DEVICES[:2])
    for shared in ({"shared_blocks": True}, {"relative_attention_num_buckets": 8}):
        backbone = bert_tf.BertBackbone(dataclasses.replace(CONFIG, **shared))
        with pytest.raises(UserError, match="share no weights"):
            stages(bert_tf.BertPretrainer(backbone), DEVICES[:1])
    with tf.distribute.MirroredStrategy(DEVICES[:2]).scope():
        replicated = pretrainer()
    with pytest.raises(UserError, match="Received: MirroredStrategy"):
        stages(replicated, DEVICES[:2])
    model.compile("sgd")
    with pytest.raises(UserError, match="must not be compiled before"):
        stages(model, DEVICES[:2])
    model = pretrainer()
    placement = stages(model, DEVICES[:2], blocks_per_stage=[1, 1])
    assert placement.stages == (0, 1)
    with pytest.raises(UserError, match="`jit_compile` must be False for a model with pipeline"):
        model.compile("sgd", jit_compile=True)
    with pytest.raises(UserError, match="4 logical CPUs"):
        make_pipeline_devices(5)


def _task(name, traced):
    """A task on two devices is the same task on one."""
    task = TASKS[name]
    results = []
    for stages in (2, None):
        model = make(task, config=dataclasses.replace(CONFIG, hidden_dropout_prob=0.3))
        if stages:
            training.pipeline_stages(model, DEVICES[:stages])
        model.compile(
            optimizer(), gradient_accumulation_steps=2, run_eagerly=not traced, **task.compiled
        )
        losses = _Losses()
        model.fit(task.dataset_of_tokens().repeat(2), verbose=0, callbacks=[losses])
        results.append((losses.logs, state(model)))
    if name in SUMS_IN_ANOTHER_ORDER:
        assert_same(*results, tolerance=1e-4)
    else:
        assert_same_bits(*results)


CHECKS = {
    "two stages": functools.partial(_equal_to_plain, stages=2, blocks=2),
    "four stages": functools.partial(_equal_to_plain, stages=4, blocks=4),
    "recomputed": functools.partial(
        _equal_to_plain, stages=2, blocks=4, gradient_checkpointing=True
    ),
    "padded": functools.partial(_equal, stages=2, padding_free=False),
    "bfloat16": functools.partial(_equal, stages=2, dtype="mixed_bfloat16"),
    "float16": functools.partial(_equal, stages=2, dtype="mixed_float16"),
    "texts": _texts,
    "frozen": _frozen,
    "predicting": _predicting,
    "schedule": _schedule,
    "resumed": _resumed,
    "placed": _placed,
    "saved": _saved,
    "refused": _refused,
}


def check(names: list[str], results, directory: str) -> None:
    """Makes some of `CHECKS`; `Results` raises what each raised.

    Args:
        names: Which; those that begin with `TRACED` in a graph, those with `TASK` of a task.
        results: As `send_results` takes it.
        directory: For files.
    """
    make_pipeline_devices(len(DEVICES))
    tf.config.experimental.enable_op_determinism()

    def find(name):
        traced = name.startswith(TRACED)
        name = name.removeprefix(TRACED)
        if name.startswith(TASK):
            return _task(name.removeprefix(TASK), traced)
        options = {}
        if name in ("resumed", "saved"):
            options["directory"] = f"{directory}/{name}{traced}"
        return CHECKS[name](traced=traced, **options)

    send_results(results, names, find)
