"""varlen_attention, varlen_cross_attention and their gradients in NumPy float64, written from the
definition, one head of one sequence at a time.

Glossary: B sequences, R tokens of all, N heads, D head size, T length of one sequence, n queries
and m keys of one sequence, M the largest distance of query and key with a bias of its own.
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
                     num_global_tokens=0, d_output=None, distance_bias=None,
                     distance_vectors=None, distance_rows=None):  # fmt: skip
    """[R, 3, N, D] -> [R, N, D]; with d_output [R, N, D] also d_qkv [R, 3, N, D].

    With d_output, also the gradients of a distance bias [N, 2 M + 1] and of vectors of distances
    [S, 2, N, D], if there are any.
    """

    def visible(length, _):
        return sees(length, causal, window_size, num_global_tokens)

    result = _attention(
        qkv[:, 0], qkv[:, 1:], row_splits, row_splits, visible, dropout_rate, seed, d_output,
        distance_bias, distance_vectors, distance_rows,
    )  # fmt: skip
    if d_output is None:
        return result
    output, d_query, d_key_value, *d_others = result
    d_qkv = np.concatenate([d_query[:, None], d_key_value], axis=1)
    others = zip((distance_bias, distance_vectors), d_others)
    return output, d_qkv, *(gradient for other, gradient in others if other is not None)


def varlen_cross_attention(query, key_value, query_row_splits, key_row_splits, dropout_rate=0.0,
                           seed=0, causal=False, d_output=None):  # fmt: skip
    """[Rq, N, D], [Rk, 2, N, D] -> [Rq, N, D]; with d_output also d_query and d_key_value."""

    def visible(n, m):
        return np.tri(n, m, m - n, bool) if causal else np.ones([n, m], bool)

    result = _attention(
        query, key_value, query_row_splits, key_row_splits, visible, dropout_rate, seed, d_output
    )
    return result if d_output is None else result[:3]


def turned(qkv, row_splits, rotation, back=False):
    """[R, 3, N, D], queries and keys turned by the angles of [P, S], or back."""
    qkv = np.array(qkv, np.float64)
    half = rotation.shape[1] // 2
    for start, end in zip(row_splits, row_splits[1:]):
        cosine, sine = np.split(rotation[: end - start, np.newaxis, np.newaxis], 2, axis=-1)
        pairs = qkv[start:end, :2, :, : 2 * half]
        numbers = pairs[..., :half] + 1j * pairs[..., half:]
        numbers = numbers * (cosine - 1j * sine if back else cosine + 1j * sine)
        pairs[...] = np.concatenate([numbers.real, numbers.imag], axis=-1)
    return qkv


def distance_places(length, num_distances):
    """The column of a distance bias for each query and key: int [T, T]."""
    reach = num_distances // 2
    return np.clip(np.subtract.outer(np.arange(length), np.arange(length)), -reach, reach) + reach


def _attention(query, key_value, query_splits, key_splits, visible, dropout_rate, seed, d_output,
               distance_bias=None, distance_vectors=None, distance_rows=None):  # fmt: skip
    """The same; `visible(n, m)` says which of m keys each of n queries attends to."""
    has_vectors = distance_vectors is not None
    if has_vectors:
        vectors = np.asarray(distance_vectors, np.float64)  # [S, 2, N, D]
    d_vectors = np.zeros_like(vectors) if has_vectors else None
    distance_bias = np.zeros([query.shape[1], 1]) if distance_bias is None else distance_bias
    distance_bias = np.asarray(distance_bias, np.float64)
    d_bias = np.zeros_like(distance_bias)
    query, key_value = np.asarray(query, np.float64), np.asarray(key_value, np.float64)
    _, num_heads, head_size = query.shape
    output, d_query, d_key_value = map(np.zeros_like, (query, query, key_value))
    rate = np.float32(dropout_rate)
    scale = 1.0 / np.sqrt((3 if has_vectors else 1) * head_size)
    for b in range(len(query_splits) - 1):
        rows, keys = slice(*query_splits[b : b + 2]), slice(*key_splits[b : b + 2])
        n, m = rows.stop - rows.start, keys.stop - keys.start
        mask = visible(n, m)
        attends = mask.any(axis=1, keepdims=True)
        for head in range(num_heads):
            q, (k, v) = query[rows, head], np.moveaxis(key_value[keys, :, head], 1, 0)
            places = distance_places(max(n, m), distance_bias.shape[1])[:n, :m]
            scores = q @ k.T * scale + distance_bias[head][places]  # [n, m]
            if has_vectors:
                kinds = distance_rows[distance_places(n, len(distance_rows))]  # [n, n]
                of_queries, of_keys = vectors[kinds, 0, head], vectors[kinds, 1, head]  # [n, n, D]
                scores += (q[:, None] * of_keys + of_queries * k).sum(axis=-1) * scale
            scores = np.where(mask | ~attends, scores, -np.inf)
            p = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
            p = attends * p / p.sum(axis=1, keepdims=True)
            keep = np.ones_like(p)
            if rate > 0:
                streams = np.arange(rows.start, rows.stop) * num_heads + head
                keep = philox_words(seed, streams, m) >= int(float(rate) * 2.0**32)
                keep = keep / (1.0 - float(rate))
            output[rows, head] = (p * keep) @ v
            if d_output is not None:
                d = np.asarray(d_output, np.float64)[rows, head]  # [n, D]
                dp = keep * (d @ v.T)
                ds = p * (dp - (p * dp).sum(axis=1, keepdims=True))
                np.add.at(d_bias[head], places, ds)
                ds = ds * scale
                d_query[rows, head] = ds @ k
                d_key_value[keys, 0, head] = ds.T @ q
                d_key_value[keys, 1, head] = (p * keep).T @ d
                if has_vectors:
                    d_query[rows, head] += (ds[..., None] * of_keys).sum(axis=1)
                    d_key_value[keys, 0, head] += (ds[..., None] * of_queries).sum(axis=0)
                    np.add.at(d_vectors[:, 0, head], kinds, ds[..., None] * k)
                    np.add.at(d_vectors[:, 1, head], kinds, ds[..., None] * q[:, None])
    gradients = d_query, d_key_value, d_bias, d_vectors
    return output if d_output is None else (output, *gradients)
