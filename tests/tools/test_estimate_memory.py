"""The estimate of memory: the sizes of real variables, values by hand, and the program."""

import dataclasses

import pytest
import tensorflow as tf

import bert_tf
from bert_tf.tools.common import training_memory
from bert_tf.tools.common.training_memory import PretrainingRun, stage_memory, stage_parameters
from bert_tf.training import LAMB, AdamWeightDecay
from tests.tools.running import run, run_program

BASE = PretrainingRun(bert_tf.BertConfig.base(), 32, 128)


def changed(**changes):
    return dataclasses.replace(BASE, **changes)


@pytest.mark.parametrize(
    "objective, precision, optimizer, changes",
    [
        ("mlm_nsp", "float32", AdamWeightDecay, {"pruned_heads": {1: [0, 2]}}),
        ("mlm", "mixed_bfloat16", AdamWeightDecay, {}),
        ("mlm_nsp", "bfloat16", LAMB, {}),
    ],
)
def test_state_is_that_of_real_variables(tiny_config, objective, precision, optimizer, changes):
    config = bert_tf.BertConfig(**{**tiny_config.to_dict(), **changes})
    backbone = bert_tf.BertBackbone(config, dtype=precision)
    model = bert_tf.BertPretrainer(backbone, objective, dtype=precision)
    optimizer = optimizer()
    trained = model.trained_variables()
    optimizer.build(trained)
    one = PretrainingRun(config, 8, 16, objective=objective, precision=precision)
    weights = [*model.trainable_variables]
    assert sum(stage_parameters(one)) == sum(map(_size, weights))
    memory = stage_memory(one)
    assert memory.weights == sum(map(_bytes, weights))
    assert memory.gradients == sum(map(_bytes, trained))
    assert memory.slots == sum(map(_bytes, [*optimizer._means, *optimizer._squares]))
    copies = sum(_bytes(copy) for _, copy in optimizer.float32_copies())
    if precision.startswith("mixed"):  # the weights that matmuls read
        copies = sum(map(_bytes, weights)) / 2
    assert memory.copies == copies


def _size(variable):
    return tf.size(variable.value).numpy()


def _bytes(variable):
    return _size(variable) * tf.as_dtype(variable.dtype).size


@pytest.mark.parametrize("name", ["gradient_accumulation_steps", "num_replicas"])
def test_gradients_are_stored_twice(name):
    assert stage_memory(changed(**{name: 2})).gradients == 2 * stage_memory(BASE).gradients


def test_stages_divide_the_model():
    trained, frozen = stage_parameters(changed(objective="mlm"))
    stages = [stage_parameters(changed(objective="mlm", pipeline_stages=4), i) for i in range(4)]
    assert sum(count for count, _ in stages) == trained
    assert [count for _, count in stages] == [0, 0, 0, frozen] and frozen == 769 * 768
    assert [len(changed(pipeline_stages=5).blocks(stage)) for stage in range(5)] == [3, 2, 3, 2, 2]


def test_activations_by_hand():
    rows, hidden, size = 32 * 128, 768, 4
    row = rows * hidden * size
    block = 7 * row + 2 * 4 * row + rows * (4 + 12) * 4
    assert training_memory.block_activations(BASE) == block
    heads = 3 * 4 * 32 * 20 * 30522 + 4 * 32 * 20 * hidden * size
    assert stage_memory(BASE).activations == 12 * (row + block) + 4 * row + heads
    again = changed(gradient_checkpointing=True)
    assert stage_memory(again).activations == 12 * row + 4 * row + max(block, heads)
    scores = 3 * 32 * 12 * 128**2 * size
    assert training_memory.block_activations(changed(ops="reference")) == block + scores


def test_padding_costs_nothing_with_the_native_ops():
    assert changed(real_tokens=0.5).tokens == 64
    assert changed(real_tokens=0.5, ops="reference").tokens == 128


def test_a_stage_stores_the_parts_that_are_on_their_way():
    pipeline = changed(pipeline_stages=4, gradient_accumulation_steps=8)
    first, second = (stage_memory(pipeline, stage).activations for stage in (1, 2))
    assert first / second == 3 / 2


def test_the_program_needs_no_tensorflow():
    flags = ("--train_batch_size=256", "--precision=mixed_bfloat16", "--memory_gib=16")
    result = run_program("-Ximporttime", "tools/estimate_memory.py", "--model=large", *flags)
    assert result.returncode == 0 and " tensorflow\n" not in result.stderr, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].startswith("stage 0: weights 1.25 + ") and lines[1].endswith(" = 31.73")
    assert lines[2] == "without --gradient_checkpointing: --gradient_accumulation_steps=4"
    assert lines[3] == "with --gradient_checkpointing: --gradient_accumulation_steps=1"


def test_nothing_fits():
    result = run("estimate_memory", "--memory_gib=1")
    assert result.stdout.count("no number of parts fits") == 2


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--model=huge",), "--model must be base, large, or a JSON file"),
        (("--max_seq_length=513",), "--max_seq_length must be at most 512"),
        (("--max_predictions_per_seq=129",), "must be at most 128, the length of the rows"),
        (("--pipeline_stages=13",), "--pipeline_stages must be at most 12"),
        (("--pipeline_stages=2", "--num_replicas=2"), "--num_replicas must be at most 1"),
        (("--gradient_accumulation_steps=5",), "--train_batch_size must be a multiple"),
    ],
)
def test_wrong_flags_are_found_at_once(flags, message):
    result = run("estimate_memory", *flags)
    assert result.returncode == 1 and result.stdout == "", result.stdout
    assert message in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr
