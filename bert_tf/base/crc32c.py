"""CRC-32C (Castagnoli), the checksum of every block and tensor in TensorFlow's checkpoints.

A CRC is linear over GF(2): the checksum of two concatenated pieces is the checksum of the first,
advanced by as many zero bytes as the second piece has, XOR the checksum of the second. A long
buffer is therefore split into lanes of equal length. NumPy processes all lanes in parallel, two
bytes per step, and the results of the lanes are combined pairwise.

Reference: RFC 3720, appendix B.4; the "masked" form: tensorflow/core/lib/hash/crc32c.h.
"""

import functools

import numpy as np

_POLYNOMIAL = 0x82F63B78  # reflected
_ALL_ONES = 0xFFFFFFFF
_MASK_DELTA = 0xA282EAD8  # tensorflow/core/lib/hash/crc32c.h, kMaskDelta
# 4 MiB at a time: enough lanes for long NumPy loops, few enough that the states stay in the cache.
_LANES, _LANE_SIZE = 65536, 64


def crc32c(content) -> int:
    """Computes the checksum of a buffer of bytes, from 0 to 2**32 - 1."""
    content = np.frombuffer(content, np.uint8)
    state = _ALL_ONES
    while len(content) >= _LANE_SIZE:
        # A power of two, to be paired.
        lanes = min(_LANES, 1 << (len(content) // _LANE_SIZE).bit_length() - 1)
        words = content[: lanes * _LANE_SIZE].view("<u2").reshape(lanes, _LANE_SIZE // 2)
        state = int(_after_zeros(state, lanes * _LANE_SIZE)) ^ _checksum_of_lanes(words)
        content = content[lanes * _LANE_SIZE :]
    table = _byte_table().tolist()
    for byte in content.tolist():
        state = table[(state ^ byte) & 0xFF] ^ state >> 8
    return state ^ _ALL_ONES


def masked(checksum: int) -> int:
    """Returns the masked form of a checksum, in which it is stored next to the data."""
    return ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & _ALL_ONES


def _checksum_of_lanes(words):
    """Returns the state after the bytes of all lanes in sequence, starting from state 0.

    `words` are 16-bit integers `[lanes, words per lane]`; the number of lanes is a power of 2.
    """
    table = _word_table()
    states = np.zeros(len(words), np.uint32)
    for column in np.ascontiguousarray(words.T):  # [words per lane, lanes]
        index = states.astype(np.uint16)
        index ^= column
        states >>= 16
        states ^= table[index]
    size = 2 * words.shape[1]
    while len(states) > 1:
        states = _after_zeros(states[::2], size) ^ states[1::2]
        size *= 2
    return int(states[0])


def _after_zeros(states, size):
    """Returns the states after `size` further zero bytes."""
    parts = [table[states >> 8 * i & 0xFF] for i, table in enumerate(_zeros_tables(size))]
    return parts[0] ^ parts[1] ^ parts[2] ^ parts[3]


@functools.cache
def _zeros_tables(size):
    """Returns a table of 256 values after `size` zero bytes for each of a state's 4 bytes."""
    values = np.arange(256, dtype=np.uint32) << (np.arange(4, dtype=np.uint32) * 8)[:, None]
    if size == 1:
        return _byte_table()[values & 0xFF] ^ (values >> 8)
    half = _after_zeros(values, size // 2)
    half = _after_zeros(half, size // 2)
    return _after_zeros(half, 1) if size % 2 else half


@functools.cache
def _byte_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


@functools.cache
def _word_table():
    """Returns the contribution of 16 bits in the low half of a state after two bytes."""
    table = _byte_table()
    words = np.arange(1 << 16, dtype=np.uint32)
    low = table[words & 0xFF] ^ words >> 8
    return table[low & 0xFF] ^ low >> 8
