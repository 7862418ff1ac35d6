"""What test_distribution.py runs in processes of its own: two replicas need two CPU devices."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.models.training_model import TrainingModel
from bert_tf.training import AdamWeightDecay
from tests.models import one_layer
from tests.training.processes import send_results


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


CHECKS = {
    "step": _step,
    "step in parts": _step_in_parts,
    "evaluation": _evaluation,
    "reductions": _reductions,
    "refused": _refused,
    "low precision": _low_precision,
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
    with strategy.scope():
        model = one_layer.compiled()
    one_layer.assert_near(one_layer.fitted(model), one_layer.expected_fit())
