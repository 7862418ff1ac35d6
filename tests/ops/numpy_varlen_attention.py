"""varlen_attention and its gradient in NumPy float64, written from the definition, row by row.

Glossary: B sequences, R tokens of all, N heads, D head size, T length of one sequence.
"""

from __future__ import annotations

import numpy as np

# What a token may see, by name: the options of the op.
MASKS = {
    "": {},
    "causal": {"causal": True},
    "window": {"window_size": 3},
    "globals": {"window_size": 9, "num_global_tokens": 2},
    "causal globals": {"causal": True, "window_size": 5, "num_global_tokens": 1},
}


def philox_words(seed: int, streams: np.ndarray, num_elements: int) -> np.ndarray:
    """Philox4x32-10 (Salmon et al., SC 2011) in philox.h's numbering: uint32 [S, num_elements]."""
    elements = np.arange(num_elements, dtype=np.uint64)
    block = elements // np.uint64(64) * np.uint64(16) + elements % np.uint64(16)
    word = (elements % np.uint64(64) // np.uint64(16)).astype(int)
    streams = np.asarray(streams, np.uint64)[:, np.newaxis]
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    shape = np.broadcast_shapes(streams.shape, block.shape)
    c = [np.broadcast_to(x, shape) for x in (block & low, block >> half, streams & low,
                                             streams >> half)]  # fmt: skip
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> half) ^ c[1] ^ np.uint64(key[0]), p1 & low,
             (p0 >> half) ^ c[3] ^ np.uint64(key[1]), p0 & low]  # fmt: skip
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.choose(word, c).astype(np.uint32)


def sees(length, causal=False, window_size=None, num_global_tokens=0):
    """Which keys a query of a sequence attends to: bool [T, T]."""
    query, key = np.arange(length)[:, None], np.arange(length)[None, :]
    visible = np.ones([length, length], bool)
    if window_size is not None:
        visible = np.abs(query - key) <= window_size
        visible |= (query < num_global_tokens) | (key < num_global_tokens)
    return visible & (key <= query) if causal else visible


def varlen_attention(qkv, row_splits, dropout_rate=0.0, seed=0, causal=False, window_size=None,
                     num_global_tokens=0, d_output=None):  # fmt: skip
    """[R, 3, N, D] -> [R, N, D]; with d_output [R, N, D] also d_qkv [R, 3, N, D]."""
    qkv = np.asarray(qkv, np.float64)
    num_rows, _, num_heads, head_size = qkv.shape
    output, d_qkv = np.zeros([num_rows, num_heads, head_size]), np.zeros_like(qkv)
    rate = np.float32(dropout_rate)
    scale = 1.0 / np.sqrt(head_size)
    for start, end in zip(row_splits[:-1], row_splits[1:]):
        visible = sees(end - start, causal, window_size, num_global_tokens)
        for n in range(num_heads):
            q, k, v = np.moveaxis(qkv[start:end, :, n], 1, 0)  # [T, D] each
            scores = np.where(visible, q @ k.T * scale, -np.inf)  # [T, T]
            p = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
            p /= p.sum(axis=1, keepdims=True)
            keep = np.ones_like(p)
            if rate > 0:
                words = philox_words(seed, np.arange(start, end) * num_heads + n, end - start)
                keep = (words >= int(float(rate) * 2.0**32)) / (1.0 - float(rate))
            output[start:end, n] = (p * keep) @ v
            if d_output is not None:
                d = np.asarray(d_output, np.float64)[start:end, n]  # [T, D]
                dp = keep * (d @ v.T)
                ds = p * (dp - (p * dp).sum(axis=1, keepdims=True)) * scale
                d_qkv[start:end, 0, n] = ds @ k
                d_qkv[start:end, 1, n] = ds.T @ q
                d_qkv[start:end, 2, n] = (p * keep).T @ d
    return output if d_output is None else (output, d_qkv)
