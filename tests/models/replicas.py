"""What test_distribution.py runs in processes of its own: two replicas need two CPU devices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertSentenceEncoder, BertTextClassifier, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import (
    AdamWeightDecay,
    BatchHardTripletLoss,
    CachedMultipleNegativesRankingLoss,
    CoSENTLoss,
    MarginMSELoss,
    MultipleNegativesRankingLoss,
    WarmupLinearDecay,
)
from bert_tf.training.training_model import TrainingModel
from tests.models import one_layer
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


def _cached_loss(strategy):
    """The steps are those without the cache, also where a replica has no rows of the last batch."""
    letters = list("abcdefgh")
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters])
    weights = []
    for loss in (
        MultipleNegativesRankingLoss(),
        CachedMultipleNegativesRankingLoss(mini_batch_size=2),
    ):
        keras.utils.set_random_seed(7)
        with strategy.scope():
            encoder = BertSentenceEncoder(BertBackbone(CONFIG), tokenizer=tokenizer)
            encoder.compile(keras.optimizers.SGD(0.5), objective=loss)
        encoder.fit((letters[:5], letters[3:]), batch_size=4, verbose=0)
        weights.append([variable.numpy() for variable in encoder.trainable_variables])
    for received, values in zip(*weights):
        np.testing.assert_allclose(received, values, rtol=1e-5, atol=1e-6)


def _sentence_losses(strategy):
    """Batches are divided in two parts; the last batch leaves a replica without rows.

    The loss of a part is that of its rows, so only a loss whose examples do not compare each other
    takes the steps of one device.
    """
    letters = list("abcdefgh")
    tokenizer = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters])
    teacher = np.random.default_rng(0).normal(size=[5, 3])
    triplets = letters[:5], letters[1:6], [["a", "b"]] * 5
    same = [1, 0, 1, 0, 1]
    for loss, texts, labels in (
        (MarginMSELoss(), triplets, teacher),
        (CoSENTLoss(), triplets[:2], same),
        (BatchHardTripletLoss(), letters[:5], same),
    ):
        weights = []
        strategies = [strategy]
        if isinstance(loss, MarginMSELoss):
            strategies.append(tf.distribute.get_strategy())
        for each in strategies:
            keras.utils.set_random_seed(7)
            with each.scope():
                encoder = BertSentenceEncoder(BertBackbone(CONFIG), tokenizer=tokenizer)
                sgd = keras.optimizers.SGD(0.5)
                encoder.compile(sgd, objective=loss, gradient_accumulation_steps=2)
            history = encoder.fit(texts, np.array(labels), batch_size=4, verbose=0).history
            weights.append([variable.numpy() for variable in encoder.trainable_variables])
            assert all(np.isfinite(values).all() for values in (*weights[-1], history["loss"]))
        for received, values in zip(weights[0], weights[-1]):
            np.testing.assert_allclose(received, values, rtol=1e-5, atol=1e-6)


CHECKS = {
    "step": _step,
    "step in parts": _step_in_parts,
    "evaluation": _evaluation,
    "reductions": _reductions,
    "refused": _refused,
    "low precision": _low_precision,
    "texts by rows": _texts_by_rows,
    "texts by tokens": _texts_by_tokens,
    "cached loss": _cached_loss,
    "sentence losses": _sentence_losses,
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
