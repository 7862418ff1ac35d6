"""What two replicas of one process and two workers must do with their gradients."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training import AdamWeightDecay

# Not empty: TensorFlow crashes where it makes an empty variable for several workers.
SHAPES = ([3, 5], [7], [1, 2], [], [40, 11])
COLLECTIVES = ("CollectiveReduceV2", "CollectiveReduceV3")


def _of_replicas(replicas):
    """Returns the gradients of all replicas, float32 `[replicas, ...]`, some of them not finite."""
    random = np.random.default_rng(4)
    values = [random.normal(size=[replicas, *shape]) for shape in SHAPES]
    values[0][0, 1] = np.inf
    values[0][1, 1, 0] = -np.inf
    values[1][0, 2] = np.nan
    return [value.astype(np.float32) for value in values]


class _Sums(AdamWeightDecay):
    """Keeps the sums of the gradients."""

    def update_variables(self, gradients, variables, indices, rate):
        self.sums = gradients


def _summed(strategy, dtype=None, bytes_per_pack=0):
    """Returns the sums of the first local replica, and the number of collectives of a step."""
    gradients = list(map(tf.constant, _of_replicas(strategy.num_replicas_in_sync)))
    with strategy.scope():
        variables = [keras.Variable(np.zeros(shape)) for shape in SHAPES]
        options = {"all_reduce_dtype": dtype, "all_reduce_bytes_per_pack": bytes_per_pack}
        optimizer = _Sums(0.1, **options)
        optimizer.build(variables)

    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply([gradient[replica] for gradient in gradients], variables)
        return optimizer.sums

    function = tf.function(lambda: strategy.run(step)).get_concrete_function()
    kinds = [operation.type for operation in function.graph.get_operations()]
    sums = [strategy.experimental_local_results(value)[0].numpy() for value in function()]
    return sums, sum(map(kinds.count, COLLECTIVES))


@np.errstate(invalid="ignore")  # infinity minus infinity
def require_sums(strategy: tf.distribute.Strategy) -> None:
    """Requires the sums of two replicas in float32, bit for bit, and in bfloat16 near float64's."""
    parts = _of_replicas(2)
    exact, together = _summed(strategy)
    for received, part in zip(exact, parts, strict=True):
        np.testing.assert_array_equal(received, part[0] + part[1])
    rounded, in_one = _summed(strategy, "bfloat16")
    packed, in_packs = _summed(strategy, "bfloat16", 15)
    assert in_one == together and in_packs == 3 * in_one  # of at least 16 bytes
    unit = 2.0**-8  # the largest relative error of a rounding to bfloat16
    for received, same, part in zip(rounded, packed, parts, strict=True):
        assert received.dtype == np.float32
        np.testing.assert_array_equal(received, same)
        total = part.astype(np.float64).sum(axis=0)
        bound = 2 * unit * np.abs(part.astype(np.float64)).sum(axis=0) + unit**2
        is_finite = np.isfinite(total)
        assert (np.abs(received - total)[is_finite] <= bound[is_finite]).all()
        np.testing.assert_array_equal(received[~is_finite], total[~is_finite])
    assert any((one != other).any() for one, other in zip(exact[3:], rounded[3:]))


def require_clip_of_the_sum(strategy: tf.distribute.Strategy) -> None:
    """The norm and the clip are those of the sum, although each replica's gradient is small."""
    with strategy.scope():
        variable = keras.Variable(np.zeros(2), name="kernel")
        optimizer = AdamWeightDecay(0.1, weight_decay_rate=0.0, all_reduce_dtype="bfloat16")
        optimizer.build([variable])
    gradients = tf.constant([[0.75, 0.0], [0.75, 2.0]])  # exact in bfloat16, as is their sum

    @tf.function
    def step():
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply([gradients[replica]], [variable])

    strategy.run(step)
    np.testing.assert_allclose(optimizer.gradient_norm.numpy(), 2.5, rtol=1e-6)
    mean = strategy.experimental_local_results(optimizer._means[0].value)[0].numpy()
    np.testing.assert_allclose(mean, 0.1 * np.array([0.6, 0.8]), rtol=1e-6)
