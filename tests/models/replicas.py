"""What test_distribution.py runs in processes of its own: two replicas need two CPU devices."""

import copy
import dataclasses
import functools
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertSentenceEncoder, BertTextClassifier, BertTokenizer
from bert_tf.adapt import DenoisingAutoencoder
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification import model as text_classification
from bert_tf.training import (
    AdamWeightDecay,
    AnglELoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    BatchSemiHardTripletLoss,
    CachedMultipleNegativesRankingLoss,
    ContrastiveLoss,
    CoSENTLoss,
    GISTEmbedLoss,
    MarginMSELoss,
    MultipleNegativesRankingLoss,
    OnlineContrastiveLoss,
    OrdinalLogLoss,
    SparseCrossentropy,
    TripletLoss,
    WarmupLinearDecay,
)
from bert_tf.training.training_model import TrainingModel
from tests.models import one_layer
from tests.training.distribution import gradient_sums
from tests.training.processes import send_results

CONFIG = BertConfig(
    vocab_size=13,
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def two_replicas() -> tf.distribute.MirroredStrategy:
    """Must be called before TensorFlow has started."""
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def _step(strategy):
    with strategy.scope():
        model = one_layer.compiled()
    one_layer.assert_near(one_layer.fitted(model), one_layer.expected_fit())


def _step_in_parts(strategy):
    with strategy.scope():
        model = one_layer.compiled(parts=3)  # of a replica's 4 rows, 1 row or none
    one_layer.assert_near(one_layer.fitted(model), one_layer.expected_fit())


def _evaluation(strategy):
    with strategy.scope():
        model = one_layer.compiled()
    received = model.evaluate(one_layer.batches(), verbose=0, return_dict=True)
    one_layer.assert_near(received, one_layer.expected_evaluation())


def _reductions(strategy):
    """A step is plain Keras's on one device, whatever the reduction."""
    for reduction in ("sum", "sum_over_batch_size", "mean_with_sample_weight"):
        loss = keras.losses.MeanSquaredError(reduction=reduction)
        one_layer.assert_step_is_kerass(loss, one_layer.rows_of_numbers(True), strategy=strategy)
    one_layer.assert_step_is_kerass(
        "mse",
        one_layer.rows_of_numbers(False),
        strategy=strategy,
        regularizer=keras.regularizers.L2(0.5),
    )


def _refused(strategy):
    with strategy.scope():
        model = one_layer.linear_model(TrainingModel)
        with pytest.raises(UserError, match="reduction=None"):
            model.compile("sgd", keras.losses.MeanSquaredError(reduction=None))
        with pytest.raises(UserError, match="MirroredStrategy with 2 replicas. Leave `jit_comp"):
            model.compile("sgd", jit_compile=True)


def _low_precision(strategy):
    """Weights in bfloat16 take the same steps as on one device."""
    results = []
    for each in (tf.distribute.get_strategy(), strategy):
        with each.scope():
            weight = keras.Variable(np.ones(3), dtype="bfloat16", name="kernel")
            optimizer = AdamWeightDecay(1e-3)
            optimizer.build([weight])
        share = tf.constant([1.0, 2.0, 3.0], tf.bfloat16) / each.num_replicas_in_sync
        for _ in range(6):
            each.run(lambda: optimizer.apply([share], [weight]))
        results.append(weight.numpy().astype(np.float32))
    assert (results[0] < 1.0).all()
    np.testing.assert_array_equal(*results)


def _text_fit(strategy, **options) -> list[np.ndarray]:
    """The losses of two epochs on texts, the evaluation's and the weights after them."""
    random = np.random.default_rng(0)
    letters = list("abcdefgh")
    texts = [" ".join(random.choice(letters, size)) for size in random.integers(1, 25, 13)]
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters])
    with strategy.scope():
        model = BertTextClassifier(BertBackbone(CONFIG), tokenizer=tokenizer)
        for variable in model.trainable_variables:
            variable.assign(0.3 * random.normal(size=variable.shape))
        # Adam would enlarge the least differences; `fit` finds the number of steps.
        model.compile(keras.optimizers.SGD(WarmupLinearDecay(0.2, warmup=0.25)))
    keras.utils.set_random_seed(5)
    labels = random.integers(0, 2, 13)
    history = model.fit(texts, labels, epochs=2, verbose=0, **options)
    model.untrained_heads = ("classifier",)  # as after opening a checkpoint without it
    model.require_trained_heads("asked")
    found = model.evaluate(texts, labels, batch_size=5, verbose=0, return_dict=True)
    weights = [variable.numpy() for variable in model.trainable_variables]
    return [np.array(history.history["loss"]), np.array(found["loss"]), *weights]


def _texts(strategy, **options):
    """The order of the rows and the losses are those of one device; a replica may have no rows."""
    expected = _text_fit(tf.distribute.get_strategy(), **options)
    for received, values in zip(_text_fit(strategy, **options), expected):
        np.testing.assert_allclose(received, values, rtol=1e-6, atol=1e-6)


def _texts_by_rows(strategy):
    _texts(strategy, batch_size=4, class_weight={0: 1.0, 1: 3.0})


def _texts_by_tokens(strategy):
    _texts(strategy, token_budget=40)


NUM_EXAMPLES = 17  # a batch of 16, and one that leaves a replica without rows
_random = np.random.default_rng(1)
TEXTS = [
    [" ".join(_random.choice(list("abcdefgh"), size)) for size in sizes]
    for sizes in _random.integers(1, 9, [3, NUM_EXAMPLES])
]
SAME = np.arange(NUM_EXAMPLES) % 2
CLASSES = np.arange(NUM_EXAMPLES) // 2 % 3
NUMBERS = _random.normal(size=[NUM_EXAMPLES, 2, 4]).astype(np.float32)
CONTRASTIVE = ContrastiveLoss("euclidean", margin=9.0)
LOSSES = {
    # The loss, the texts, the labels, and the parts in which one device takes the same steps. Where
    # examples are independent, there is one; others are compared in the parts of the replicas.
    "AnglE": (AnglELoss(), TEXTS[:2], NUMBERS[:, 0, 0], 4),
    "batch-all triplet": (BatchAllTripletLoss(), TEXTS[:1], CLASSES, 4),
    "batch-hard triplet": (BatchHardTripletLoss(), TEXTS[:1], CLASSES, 4),
    "batch-semi-hard triplet": (BatchSemiHardTripletLoss(), TEXTS[:1], CLASSES, 4),
    "cached GIST": (GISTEmbedLoss(0.5, mini_batch_size=3), TEXTS[:2], NUMBERS, 4),
    "cached ranking": (CachedMultipleNegativesRankingLoss(mini_batch_size=3), TEXTS, None, 4),
    "contrastive": (CONTRASTIVE, TEXTS[:2], SAME, 1),
    "CoSENT": (CoSENTLoss(), TEXTS[:2], NUMBERS[:, 0, 0], 4),
    "margin MSE": (MarginMSELoss(), TEXTS, NUMBERS[:, 0, :2], 1),
    "mean of layers": (CONTRASTIVE, TEXTS[:2], SAME, 1),
    "online contrastive": (OnlineContrastiveLoss("euclidean", 9.0), TEXTS[:2], SAME, 4),
    "ordinal": (OrdinalLogLoss(), TEXTS[:1], CLASSES, 1),
    "R-Drop": (SparseCrossentropy(), TEXTS[:1], CLASSES, 1),
    "SimCSE": (MultipleNegativesRankingLoss(), [TEXTS[0]] * 2, None, 4),
    "triplet": (TripletLoss(), TEXTS, None, 1),
    "TSDAE": (None, TEXTS[:1], None, 1),
}


def _model_with_loss(name, loss, **options):
    """A model without dropout; the options are of `compile`."""
    keras.utils.set_random_seed(7)
    options["optimizer"] = keras.optimizers.SGD(0.05)
    backbone = BertBackbone(dataclasses.replace(CONFIG, initializer_range=0.3))
    if isinstance(loss, keras.losses.Loss):
        model = BertTextClassifier(backbone, num_classes=3)
        model.compile(loss=loss, r_drop=2.0 * (name == "R-Drop"), **options)
        return model
    encoder = BertSentenceEncoder(backbone, layer_start=0 if name == "mean of layers" else None)
    if loss is None:
        model = DenoisingAutoencoder(encoder, deletion_rate=0.0)
        model.compile(**options)
        return model
    encoder.compile(objective=loss, **options)
    return encoder


def _loss(strategy, name):
    """Two replicas, each in two parts, take the steps of one device, which computes eagerly."""
    loss, texts, labels, parts = LOSSES[name]
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"])
    columns = [tokenizer(column, padding="max_length", max_length=10) for column in texts]
    tokens = columns[0]
    if len(texts) > 1:
        tokens = tf.nest.map_structure(lambda *ids: tf.stack(ids, axis=1), *columns)  # [n, K, T]
    data = tf.data.Dataset.from_tensor_slices((tokens,) if labels is None else (tokens, labels))
    found = []
    for each, count in ((strategy, 2), (tf.distribute.get_strategy(), parts)):
        with each.scope():
            options = {"gradient_accumulation_steps": count, "run_eagerly": each is not strategy}
            model = _model_with_loss(name, loss, **options)
        before = [variable.numpy() for variable in model.trained_variables()]
        # Without dropout, both passes of R-Drop are the same, and their divergence is 0.
        square = lambda first, second: tf.reduce_sum(first * second, axis=-1)  # noqa: E731
        with mock.patch.object(text_classification, "symmetric_divergence", square):
            history = model.fit(data.batch(NUM_EXAMPLES - 1), shuffle=False, verbose=0).history
        found.append([history["loss"], *(v.numpy() for v in model.trained_variables())])
        if getattr(loss, "mini_batch_size", None):  # one device computes all texts at once
            loss = copy.copy(loss)
            loss.mini_batch_size = None
    assert max(np.abs(new - old).max() for new, old in zip(found[0][1:], before)) > 1e-3
    for received, values in zip(*found, strict=True):
        np.testing.assert_allclose(received, values, rtol=1e-5, atol=1e-5)


CHECKS = {
    "step": _step,
    "step in parts": _step_in_parts,
    "evaluation": _evaluation,
    "reductions": _reductions,
    "refused": _refused,
    "low precision": _low_precision,
    "texts by rows": _texts_by_rows,
    "texts by tokens": _texts_by_tokens,
    **{f"loss {name}": functools.partial(_loss, name=name) for name in LOSSES},
}


def check(names: list[str], results) -> None:
    """Makes some of `CHECKS`; `Results` raises what each raised.

    Args:
        names: Which.
        results: As `send_results` takes it.
    """
    strategy = two_replicas()
    send_results(results, names, lambda name: CHECKS[name](strategy))


def check_worker() -> None:
    """One of the workers that TF_CONFIG lists: each has the weights and logs of one process."""
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    _texts_by_rows(strategy)
    with strategy.scope():
        model = one_layer.compiled()
    one_layer.assert_near(one_layer.fitted(model), one_layer.expected_fit())
    gradient_sums.require_sums(strategy)
    gradient_sums.require_clip_of_the_sum(strategy)
