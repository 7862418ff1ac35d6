"""The random bits of dropout in stock TensorFlow, identical to those of the kernels.

The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
2011). Its key is the 64-bit seed, and its 128-bit counter is (low 64 bits: block, high 64 bits:
stream). The elements of a stream are numbered. Element e uses word w of block b with
b = 16 c + r % 16 and w = r // 16, where c = e // 64 and r = e % 64. The native implementation,
`custom_ops/kernels/base/philox.h`, explains this order.
"""

import numpy as np
import tensorflow as tf

from bert_tf.ops.native import seed_tensor

_CHUNK = 64  # elements
_BLOCKS_IN_CHUNK = 16
_WORDS_IN_BLOCK = 4
_PHILOX = 1  # tf.random.Algorithm.PHILOX

# Salmon et al., table 2 and section 4.2. Every round adds the Weyl constants to the key.
_ROUNDS = 10
_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW_32 = 0xFFFFFFFF


def philox_uniform_bits(
    seed: int | tf.Tensor, num_elements: int | tf.Tensor, stream: int | tf.Tensor = 0
) -> tf.Tensor:
    """Returns the random bits of the first elements of one stream.

    Args:
        seed: An int or a scalar int64 tensor.
        num_elements: An int or a scalar integer tensor.
        stream: An int or a scalar int64 tensor.

    Returns:
        `[num_elements]`, uint32.

    Raises:
        ValueError: If `seed` or `stream` is not an int or a scalar integer tensor.

    Example:
        >>> bits = bert_tf.ops.philox_uniform_bits(seed=0, num_elements=1)
        >>> hex(bits.numpy()[0])
        '0x6627e8d5'
    """
    num_elements = tf.cast(num_elements, tf.int32)
    num_chunks = (num_elements + (_CHUNK - 1)) // _CHUNK
    words = tf.raw_ops.StatelessRandomUniformFullIntV2(
        shape=tf.stack([num_chunks, _BLOCKS_IN_CHUNK, _WORDS_IN_BLOCK]),
        key=tf.reshape(_unsigned(seed_tensor(seed)), [1]),
        counter=tf.stack([tf.constant(0, tf.uint64), _unsigned(seed_tensor(stream))]),
        alg=_PHILOX,
        dtype=tf.uint32,
    )
    words = tf.transpose(words, [0, 2, 1])  # [chunks, 16, 4] -> [chunks, 4, 16]
    return tf.reshape(words, [-1])[:num_elements]  # [chunks, 4, 16] -> [num_elements]


def philox_uniform_bits_streams(
    seed: int | tf.Tensor, streams: tf.Tensor, num_elements: int | tf.Tensor
) -> tf.Tensor:
    """Returns `philox_uniform_bits` of streams `[S]`, int64: `[S, num_elements]`, uint32."""
    streams = _unsigned(tf.cast(tf.convert_to_tensor(streams), tf.int64))[:, tf.newaxis]  # [S, 1]
    num_elements = tf.cast(num_elements, tf.int64)
    num_chunks = (num_elements + (_CHUNK - 1)) // _CHUNK
    blocks = _unsigned(tf.range(num_chunks * _BLOCKS_IN_CHUNK))[tf.newaxis, :]  # [1, 16 chunks]
    zeros = tf.zeros_like(streams + blocks)  # [S, 16 chunks]
    counter = [_low(blocks) + zeros, _high(blocks) + zeros,
               _low(streams) + zeros, _high(streams) + zeros]  # fmt: skip
    key = _unsigned(seed_tensor(seed))
    words = tf.stack(_philox(counter, [_low(key), _high(key)]), axis=1)  # [S, 4, 16 chunks]
    shape = tf.stack([-1, _WORDS_IN_BLOCK, tf.cast(num_chunks, tf.int32), _BLOCKS_IN_CHUNK])
    words = tf.transpose(tf.reshape(words, shape), [0, 2, 1, 3])  # [S, chunks, 4, 16]
    num_streams = tf.shape(streams)[0]
    row = tf.cast(num_chunks * _CHUNK, tf.int32)
    words = tf.reshape(words, tf.stack([num_streams, row]))  # [S, 64 chunks]
    return tf.cast(words[:, :num_elements], tf.uint32)


def dropout_threshold(rate: float) -> int:
    """Returns the threshold of dropout: an element is kept if its bits are at least this value.

    The probability of that is 1 - rate.
    """
    return int(float(np.float32(rate)) * 2.0**32)


def dropout_scale(rate: float) -> np.float32:
    """Returns the factor of the kept elements, 1 / (1 - rate), rounded as in the kernels."""
    return np.float32(1.0) / (np.float32(1.0) - np.float32(rate))


def dropout(values: tf.Tensor, rate: float, seed: int | tf.Tensor) -> tf.Tensor:
    """Applies dropout to a float32 tensor. The flat index of an element is its number in stream 0.

    A dropped NaN becomes zero, as in the kernels.
    """
    if rate == 0.0:
        return values
    bits = philox_uniform_bits(seed, tf.size(values))
    kept = tf.reshape(bits >= tf.constant(dropout_threshold(rate), tf.uint32), tf.shape(values))
    return tf.where(kept, values * dropout_scale(rate), tf.zeros_like(values))


def _philox(counter: list[tf.Tensor], key: list[tf.Tensor]) -> list[tf.Tensor]:
    """Computes Philox4x32-10 on 32-bit words that are stored in uint64 tensors."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        product_0 = c0 * tf.constant(_MULTIPLIER_0, tf.uint64)
        product_1 = c2 * tf.constant(_MULTIPLIER_1, tf.uint64)
        c0 = _high(product_1) ^ c1 ^ k0
        c1 = _low(product_1)
        c2 = _high(product_0) ^ c3 ^ k1
        c3 = _low(product_0)
        k0 = _low(k0 + tf.constant(_WEYL_0, tf.uint64))
        k1 = _low(k1 + tf.constant(_WEYL_1, tf.uint64))
    return [c0, c1, c2, c3]


def _unsigned(tensor: tf.Tensor) -> tf.Tensor:
    return tf.bitcast(tensor, tf.uint64)


def _low(tensor: tf.Tensor) -> tf.Tensor:
    return tensor & tf.constant(_LOW_32, tf.uint64)


def _high(tensor: tf.Tensor) -> tf.Tensor:
    return tf.bitwise.right_shift(tensor, tf.constant(32, tf.uint64))
