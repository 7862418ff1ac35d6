"""Philox4x32-10 in NumPy, written from Salmon et al., and `philox.h`'s numbering of elements."""

import numpy as np


def philox4x32(counter, key):
    """counter [..., 4], key [2], both of 32-bit words; returns uint64 [..., 4] of 32-bit words."""
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, np.uint64), -1, 0)
    k0, k1 = (int(word) for word in key)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p0 = c0 * np.uint64(0xD2511F53)
        p1 = c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0 = (k0 + 0x9E3779B9) & 0xFFFFFFFF
        k1 = (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], -1)


def element_bits(seed, num_elements, stream=0):
    """uint32 [num_elements]."""
    seed, stream = seed % 2**64, stream % 2**64
    element = np.arange(num_elements, dtype=np.uint64)
    chunk, rest = element // np.uint64(64), element % np.uint64(64)
    block = chunk * np.uint64(16) + rest % np.uint64(16)
    word = (rest // np.uint64(16)).astype(np.int64)
    low = np.uint64(0xFFFFFFFF)
    counter = np.stack(
        [
            block & low,
            block >> np.uint64(32),
            np.full_like(block, stream & 0xFFFFFFFF),
            np.full_like(block, stream >> 32),
        ],
        -1,
    )
    words = philox4x32(counter, (seed & 0xFFFFFFFF, seed >> 32))
    return np.take_along_axis(words, word[:, None], -1)[:, 0].astype(np.uint32)


def keep_mask(seed, shape, rate):
    """The dropout mask times its scale, float64."""
    if rate == 0.0:
        return np.ones(shape)
    bits = element_bits(seed, int(np.prod(shape))).reshape(shape)
    rate = float(np.float32(rate))
    return np.where(bits >= int(rate * 2**32), 1.0 / (1.0 - rate), 0.0)
