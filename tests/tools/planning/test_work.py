"""The work of a step, compared with a traced graph and with values computed by hand."""

import dataclasses

import pytest
import tensorflow as tf

import bert_tf
from benchmarks import workloads
from benchmarks.workloads import Workload
from bert_tf import ops
from bert_tf.tools.planning import memory, work
from bert_tf.tools.planning.estimate import model_flops
from bert_tf.tools.planning.rates import Rates
from bert_tf.tools.planning.training_run import TrainingRun

B, T, P = 4, 16, 3


@pytest.fixture(scope="module")
def run():
    config = bert_tf.BertConfig(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=16,
    )
    return TrainingRun(config, B, T, max_predictions=P)


def test_flops_are_those_of_a_graph(run):
    """Counts the matmuls of a forward and backward pass in plain TensorFlow, on padded rows."""
    model = bert_tf.BertPretrainer(bert_tf.BertBackbone(run.config, padding_free=False))

    @tf.function
    def step(token_ids, positions):
        inputs = {"token_ids": token_ids, "masked_positions": positions}
        with tf.GradientTape() as tape:
            loss = sum(tf.reduce_sum(value) for value in model(inputs).values())
        return tape.gradient(loss, model.trainable_variables)

    with ops.backend("reference"):
        shapes = (tf.TensorSpec([B, T], tf.int32), tf.TensorSpec([B, P], tf.int32))
        graph = step.get_concrete_function(*shapes).graph
    counted = sum(map(_flops, graph.get_operations()))
    sentences = 3 * 2 * B * run.config.hidden_size * 2  # the last layer, which `work` leaves out
    assert counted - sentences == model_flops(run)


def _flops(operation):
    if operation.type not in ("MatMul", "BatchMatMulV2"):
        return 0
    left, right = (tensor.shape.as_list() for tensor in operation.inputs)
    (result,) = (tensor.shape for tensor in operation.outputs)
    transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
    depth = left[-2] if operation.get_attr(transposed) else left[-1]
    assert depth in right
    return 2 * depth * result.num_elements()


@pytest.mark.parametrize("length", [16, 12])
def test_flops_are_those_of_the_benchmark(run, length):
    run = dataclasses.replace(
        run, max_seq_length=length, max_predictions=workloads.masked_count(length)
    )
    config = run.config.to_dict()
    assert model_flops(run) == workloads.training_flops(Workload.dense(B, length), config)


def test_padding_costs_nothing_without_padding(run):
    half = dataclasses.replace(run, real_tokens=0.5)
    short = dataclasses.replace(run, max_seq_length=T // 2)
    assert work.block_work(half, B) == work.block_work(short, B)
    padded = dataclasses.replace(half, padding_free=False)
    assert work.block_work(padded, B) == work.block_work(run, B)
    assert half.predictions == padded.predictions == P


def test_checkpointing_computes_the_forward_pass_twice(run):
    once, twice = (work.block_work(run, B, checkpointing=again) for again in (False, True))
    forward = [dataclasses.replace(matmul, times=1) for matmul in once.matmuls]
    more = sum(matmul.flops for matmul in forward) + 4 * 32 * B * T**2
    assert twice.flops - once.flops == more
    assert twice.blocks == 2 * once.blocks


def test_native_attention_computes_scores_again_and_stock_attention_moves_them(run):
    native, stock = (work.block_work(run, B, stores_probabilities=s) for s in (False, True))
    assert native.attention_flops - stock.attention_flops == 2 * 32 * B * T**2
    assert stock.bytes[work.COPY] - native.bytes[work.COPY] == 9 * 4 * B * 4 * T**2


def test_activations_of_a_block_by_hand(run):
    tokens = B * T
    floats = 3 * 32 + 32 + 3 * 32 + 2 * 48 + (2 * 2 + 4)
    assert memory.block_activations(run, B) == 4 * tokens * floats
    stock = memory.block_activations(run, B, stores_probabilities=True)
    assert stock - 4 * tokens * floats == 3 * 4 * B * 4 * T**2


def test_activations_of_a_stage_by_hand(run):
    block, rows = memory.block_activations(run, B), 4 * B * T * 32
    heads = 3 * 4 * B * P * 99 + 4 * B * P * 32 * 4
    assert memory.stage_activations(run, B, 2) == 2 * (block + rows) + 4 * rows + heads
    middle = {"is_first": False, "is_last": False}
    assert memory.stage_activations(run, B, 2, in_flight=3, **middle) == 3 * 2 * (block + rows)
    again = memory.stage_activations(run, B, 2, in_flight=3, checkpointing=True, **middle)
    assert again == 3 * 2 * rows + block


def test_time_is_work_by_rate():
    rates = Rates.of_peak(flops=1e9, bandwidth=1e6, efficiency=0.5)
    some = work.Work((work.Matmul(10, 20, 30, 3),), 4e4, 7, {work.GELU: 500.0}, 2)
    assert some.flops == 3 * 2 * 10 * 20 * 30 + 4e4
    assert rates.seconds(some) == pytest.approx((some.flops / 1e9 + 500 / 1e6) / 0.5)
    slow = dataclasses.replace(
        rates, seconds_per_matmul_byte=1e-3, attention_seconds_per_score=1.0, seconds_per_block=5.0
    )
    matrices = 3 * 4 * (10 * 20 + 20 * 30 + 10 * 30) * 1e-3
    more = (matrices + 7) / 0.5 + 2 * 5
    assert slow.seconds(some) - rates.seconds(some) == pytest.approx(more)
