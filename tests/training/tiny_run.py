"""A pre-training run of a few seconds, for the tests that kill it."""

import pathlib

import keras
import numpy as np
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertPretrainer
from bert_tf.training import (
    AdamWeightDecay,
    TrainingCheckpoint,
    WarmupLinearDecay,
    fit_steps,
    make_strategy,
)
from bert_tf.training.callbacks import JsonLines, StopOnSignal, TerminateOnBadLoss, TrainingLog
from bert_tf.training.distribution.strategies import WorkerHealthMonitor

BATCH, LENGTH, PLACES = 8, 16, 3
SAVE_EVERY = 5


def config(**changes) -> BertConfig:
    """One block with dropout, so that its random state matters."""
    values = dict(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LENGTH,
        initializer_range=0.1,
    )
    return BertConfig(**{**values, **changes})


def batches(step: int, shard: int = 0, num_shards: int = 1, bad_step: int | None = None):
    """The batches from `step` on: each is a function of its number, shards are its rows."""
    rows = BATCH // num_shards

    def batch(number):
        def draw(shape, low, high, salt):
            seed = tf.stack([number, tf.constant(salt, tf.int64)])
            values = tf.random.stateless_uniform(shape, seed, low, high, tf.int32)
            return values[shard * rows : (shard + 1) * rows]

        lengths = draw([BATCH, 1], 8, LENGTH + 1, 0)
        features = {
            "token_ids": draw([BATCH, LENGTH], 5, 64, 1),
            "segment_ids": draw([BATCH, LENGTH], 0, 2, 2),
            "padding_mask": tf.range(LENGTH) < lengths,
            "masked_positions": draw([BATCH, PLACES], 0, 8, 3),
        }
        weights = tf.cast(draw([BATCH, PLACES], 0, 2, 4), tf.float32)
        if bad_step is not None:
            weights = tf.where(number == bad_step, np.nan, weights)
        labels = {
            "masked_ids": draw([BATCH, PLACES], 5, 64, 5),
            "masked_weights": weights,
            "next_sentence_labels": draw([BATCH], 0, 2, 6),
        }
        return features, labels

    return tf.data.Dataset.counter(step).map(batch)


def compiled(num_steps: int = 60, **changes) -> BertPretrainer:
    model = BertPretrainer(BertBackbone(config(**changes)))
    model.compile(AdamWeightDecay(WarmupLinearDecay(1e-2, num_steps, num_steps // 10)))
    return model


def weights_of(model) -> dict[str, np.ndarray]:
    return {str(i): np.asarray(v) for i, v in enumerate(model.weights)}


def train(
    directory: str,
    num_steps: int = 60,
    strategy: str = "one_device",
    bad_step: int | None = None,
    deterministic: bool = True,
) -> None:
    """Trains in `directory`, from its newest checkpoint, and ends with `weights.npz`."""
    directory = pathlib.Path(directory)
    strategy = make_strategy(strategy)
    keras.utils.set_random_seed(7)
    if deterministic:
        tf.config.experimental.enable_op_determinism()
    with strategy.scope():
        model = compiled(num_steps)
    checkpoint = TrainingCheckpoint(directory / "checkpoints", save_every=SAVE_EVERY, keep=3)
    step = checkpoint.restore(model)

    def dataset_from(step):
        return strategy.distribute_datasets_from_function(
            lambda context: batches(
                step, context.input_pipeline_id, context.num_input_pipelines, bad_step
            )
        )

    fit_steps(
        model,
        dataset_from,
        num_steps,
        step,
        steps_per_epoch=20,
        callbacks=[
            TerminateOnBadLoss(
                checkpoint, lambda step: next(iter(batches(step, 0, 1, bad_step))), directory, step
            ),
            WorkerHealthMonitor(checkpoint.newest),
            TrainingLog(1, [JsonLines(directory / "log.jsonl", step)], BATCH, initial_step=step),
            checkpoint,
            StopOnSignal(checkpoint, initial_step=step),
        ],
    )
    if strategy.cluster_resolver is None or strategy.cluster_resolver.task_id == 0:
        np.savez(directory / "weights.npz", **weights_of(model))
