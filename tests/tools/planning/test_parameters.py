"""The counts of parameters and the bytes of a model's state are those of real models."""

import pytest
import tensorflow as tf

import bert_tf
from bert_tf.tools.planning import memory, parameters
from bert_tf.tools.planning.training_run import TrainingRun
from bert_tf.training import LAMB, AdamWeightDecay


@pytest.mark.parametrize("changes", [{}, {"pruned_heads": {1: [0, 2]}}])
def test_backbone(tiny_config, changes):
    config = bert_tf.BertConfig(**{**tiny_config.to_dict(), **changes})
    assert parameters.backbone(config) == bert_tf.BertBackbone(config).count_params()


def test_bert_base_and_large_have_the_known_numbers():
    assert parameters.backbone(bert_tf.BertConfig.base()) == 109_482_240
    assert parameters.backbone(bert_tf.BertConfig.large()) == 335_141_888


@pytest.mark.parametrize(
    "objective, precision, optimizer",
    [
        ("mlm_nsp", "float32", AdamWeightDecay),
        ("mlm", "mixed_bfloat16", AdamWeightDecay),
        ("mlm_nsp", "bfloat16", LAMB),
    ],
)
def test_state_is_that_of_real_variables(tiny_config, objective, precision, optimizer):
    model = bert_tf.BertPretrainer(
        bert_tf.BertBackbone(tiny_config, dtype=precision), objective, dtype=precision
    )
    optimizer = optimizer()
    trained = model.trained_variables()
    optimizer.build(trained)
    run = TrainingRun(tiny_config, 8, 16, objective=objective, precision=precision)
    blocks = tiny_config.num_hidden_layers
    count = memory.stage_parameters(run, blocks, is_first=True, is_last=True)
    assert count == sum(_size(variable) for variable in trained)
    state = memory.state(run, count, parameters.frozen(run))
    weights = [*model.trainable_variables]
    assert state.weights == sum(map(_bytes, weights))
    assert state.gradients == sum(map(_bytes, trained))
    slots = sum(_bytes(variable) for variable in [*optimizer._means, *optimizer._squares])
    assert state.slots == slots
    copies = sum(_bytes(copy) for _, copy in optimizer.float32_copies())
    if precision.startswith("mixed"):  # the weights that matmuls read
        copies = sum(map(_bytes, weights)) / 2
    assert state.copies == copies


def _size(variable):
    return tf.size(variable.value).numpy()


def _bytes(variable):
    return _size(variable) * tf.as_dtype(variable.dtype).size


def test_gradients_are_held_twice_with_accumulation_or_replicas(tiny_config):
    run = TrainingRun(tiny_config, 8, 16)
    assert memory.state(run, 10).gradients == 40
    assert memory.state(run, 10, parts=2).gradients == 80
    assert memory.state(run, 10, replicas=2).gradients == 80


def test_the_word_embeddings_are_in_the_first_and_the_last_stage(tiny_config):
    run = TrainingRun(tiny_config, 8, 16)
    first = memory.stage_parameters(run, 1, is_first=True, is_last=False)
    last = memory.stage_parameters(run, 1, is_first=False, is_last=True)
    whole = memory.stage_parameters(run, 2, is_first=True, is_last=True)
    assert first + last == whole + tiny_config.vocab_size * tiny_config.hidden_size
