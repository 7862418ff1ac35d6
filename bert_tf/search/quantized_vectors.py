"""Vectors in one byte or one bit per dimension, and exact search on them.

The codes are those of sentence-transformers' `quantize_embeddings`:

    uint8    floor((x - min) / step), step = (max - min) / 255, with a range for each dimension
    int8     the same minus 128
    ubinary  the bit x > 0, eight to a byte, the first one in the highest bit
    binary   the bytes of ubinary minus 128

`[n, D]` becomes `[n, D]`, or `[n, ceil(D / 8)]` for bits; bits that are left over are zeros.
"""

import functools

import numpy as np
import tensorflow as tf

from bert_tf.base.vectors import as_array, as_finite_floats, as_matrix, as_whole_number
from bert_tf.errors import UserError, require, require_one_of, user_error
from bert_tf.search import best_rows

BYTES, BITS = ("int8", "uint8"), ("binary", "ubinary")
_LEAST = {"int8": -128, "uint8": 0}
_STEPS = 255  # between the smallest and the largest code
_EXACT = 2**24  # float32 holds all whole numbers up to here


def vector_ranges(vectors: np.ndarray) -> np.ndarray:
    """Returns the smallest and the largest value of each dimension.

    Args:
        vectors: Floats `[n, D]`, such as those of some thousand texts of a corpus.

    Returns:
        float32 `[2, D]`.

    Raises:
        UserError: If there are no vectors, or a value is not finite.

    Example:
        >>> vector_ranges(np.array([[0.0, 2.0], [1.0, -2.0]])).tolist()
        [[0.0, -2.0], [1.0, 2.0]]
    """
    vectors = as_matrix(vectors, "vectors")
    if not len(vectors):
        raise UserError("`vectors` must have rows. Received: len(vectors)=0.")
    parts = [as_finite_floats(vectors[part], False, "vectors") for part in _parts(vectors)]
    lowest = np.min([part.min(axis=0) for part in parts], axis=0)
    return np.stack([lowest, np.max([part.max(axis=0) for part in parts], axis=0)])


def quantize_vectors(
    vectors: np.ndarray, precision: str, ranges: np.ndarray | None = None
) -> np.ndarray:
    """Returns the codes of vectors.

    Args:
        vectors: Floats `[n, D]`; the matrix can be a `np.memmap`.
        precision: "int8", "uint8", "binary" or "ubinary".
        ranges: For "int8" and "uint8", what `vector_ranges` returns; values outside get the nearest
            code. None means the ranges of `vectors`.

    Returns:
        int8 or uint8 `[n, D]`, or packed bits `[n, ceil(D / 8)]`, uint8 for "ubinary", int8 for
        "binary".

    Raises:
        UserError: If an argument has another shape or type, or a value is not finite.

    Example:
        >>> quantize_vectors(np.array([[0.0, 2.55], [2.55, 0.0]]), "int8").tolist()
        [[-128, 127], [127, -128]]
        >>> quantize_vectors(np.array([[0.1, -0.2, 0.3]]), "ubinary").tolist()  # 0b10100000
        [[160]]

    Reference: sentence-transformers 6.2, quantization.py, `quantize_embeddings`.
    """
    require_one_of("precision", precision, BYTES + BITS)
    vectors = as_matrix(vectors, "vectors")
    if vectors.dtype.kind != "f":
        raise user_error("`vectors`", "be floats, not codes", f"vectors.dtype={vectors.dtype}")
    if precision in BYTES:
        ranges = (
            vector_ranges(vectors) if ranges is None else checked_ranges(ranges, vectors.shape[1])
        )
    parts = [
        _codes(as_finite_floats(vectors[part], False, "vectors"), precision, ranges)
        for part in _parts(vectors)
    ]
    return np.concatenate(parts) if parts else _codes(vectors, precision, ranges)


def quantized_top_k(
    query_vectors: np.ndarray,
    codes: np.ndarray,
    k: int,
    precision: str,
    ranges: np.ndarray | None = None,
    rescore_multiplier: int = 10,
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` best rows of a matrix of codes for each query.

    The search on codes is exact: by the dot product of bytes, or by the Hamming distance of bits.
    Float queries are quantized for it; of the best `rescore_multiplier * k` rows, those are
    returned whose decoded vectors have the highest dot product with the float query. Bits are
    decoded to a vector of length 1.

    Args:
        query_vectors: Floats `[Q, D]`, or codes of the same precision as the matrix.
        codes: The result of `quantize_vectors`, `[n, D]` or packed bits; it can be a `np.memmap`.
        k: The number of rows to find.
        precision: The precision of `codes`.
        ranges: The ranges of `codes`; float queries need them for "int8" and "uint8".
        rescore_multiplier: `rescore_multiplier * k` rows are scored again for float queries; 0 for
            none.

    Returns:
        Scores and row numbers int64, both `[Q, min(k, n)]`, the best row first, then the smaller
        number. The scores are float32 if they are computed with float queries. Otherwise they are
        int64: the dot product of bytes, or the Hamming distance of bits, of which 0 is the best.

    Raises:
        UserError: If an argument has another shape, type or range, or a query is not finite.

    Example:
        >>> vectors = np.array([[0.9, 0.1], [-0.2, 0.7], [0.1, -0.8]])
        >>> codes = quantize_vectors(vectors, "binary")
        >>> scores, rows = quantized_top_k(np.array([[-0.1, 0.5]]), codes, 2, "binary")
        >>> rows.tolist()
        [[1, 0]]

    Reference: sentence-transformers 6.2, quantization.py, `semantic_search_faiss`, which multiplies
        the float query by the codes themselves instead of the vectors that they stand for.
    """
    require_one_of("precision", precision, BYTES + BITS)
    codes = as_matrix(codes, "codes")
    k = as_whole_number(k, "k")
    rescore_multiplier = as_whole_number(rescore_multiplier, "rescore_multiplier", least=0)
    if not len(codes):
        raise UserError("`codes` must have rows. Received: len(codes)=0.")
    _require_codes("codes", codes, precision)
    queries = as_matrix(query_vectors, "query_vectors")
    floats = queries if queries.dtype.kind == "f" else None
    if floats is not None:
        rule = "must be those of the codes for float queries"
        fix = "Pass what `vector_ranges` returned before the codes were made."
        require(precision not in BYTES or ranges is not None, rule, UserError, fix, ranges=None)
        queries = quantize_vectors(floats, precision, ranges)
    _require_codes("query_vectors", queries, precision)
    if queries.shape[1] != codes.shape[1]:
        expected = "have the same number of dimensions"
        received = f"query_vectors.shape={np.shape(query_vectors)}, codes.shape={codes.shape}"
        raise user_error("`query_vectors` and `codes`", expected, received)
    is_rescored = floats is not None and rescore_multiplier > 0
    found = min(k * rescore_multiplier if is_rescored else k, len(codes))
    scorer = functools.partial(
        _byte_scorer if precision in BYTES else _bit_scorer, codes, precision
    )
    scores, rows = best_rows.best_of_queries(queries, len(codes), found, codes.shape[1], scorer)
    if not is_rescored:
        scores = scores.astype(np.int64)
        return (scores if precision in BYTES else -scores), rows
    parts = [(np.zeros([0, min(k, found)], np.float32), rows[:0, :k])]
    parts += [
        _rescored(floats[part], codes, rows[part], k, precision, ranges)
        for part in _query_parts(floats, found)
    ]
    return tuple(np.concatenate(column) for column in zip(*parts))


def checked_ranges(ranges: np.ndarray, size: int) -> np.ndarray:
    """Returns `ranges` as float32 `[2, size]`.

    Raises `UserError` if they have another shape, or are not finite or not in order.
    """
    ranges = as_array(ranges, "ranges")
    with np.errstate(over="ignore"):
        ranges = ranges.astype(np.float32)
        is_valid = ranges.shape == (2, size) and np.isfinite(ranges).all()
        is_valid = is_valid and np.isfinite(ranges[1] - ranges[0]).all()
    if not is_valid or not (ranges[0] <= ranges[1]).all():
        raise UserError(
            f"`ranges` must be [2, {size}], the smallest and the largest value of each dimension. "
            f"Received: ranges.shape={ranges.shape}"
            f"{', not finite or not in order' if ranges.shape == (2, size) else ''}."
        )
    return ranges


def decoded_bytes(codes: np.ndarray, precision: str, ranges: np.ndarray) -> np.ndarray:
    """Returns the vectors that int8 or uint8 codes stand for, float32 `[..., D]`."""
    ranges = np.asarray(ranges, np.float32)
    steps = codes.astype(np.float32) - _LEAST[precision] + 0.5  # the middle of each
    # The last code is the largest value alone, also where all values are equal.
    return np.minimum(steps * _step(ranges) + ranges[0], ranges[1])


def _parts(vectors):
    size = max(1, best_rows.BLOCK_FLOATS // vectors.shape[1])
    return [slice(start, start + size) for start in range(0, len(vectors), size)]


def _query_parts(queries, found):
    """Returns parts whose found vectors, as floats `[queries, found, D]`, fit a block."""
    size = best_rows.BLOCK_FLOATS // (found * queries.shape[1])
    return best_rows.query_slices(len(queries), max(1, min(size, best_rows.QUERIES)))


def _require_codes(name, codes, precision):
    expected = np.uint8 if precision.startswith("u") else np.int8
    if codes.dtype != expected:
        expected = f"be {np.dtype(expected)} for the precision {precision!r}"
        raise user_error(f"`{name}`", expected, f"{name}.dtype={codes.dtype}")


def _codes(vectors, precision, ranges):
    if precision in BYTES:
        least = _LEAST[precision]
        values = np.clip(np.floor((vectors - ranges[0]) / _step(ranges)), 0, _STEPS)
        return (values + least).astype(precision)
    packed = np.packbits(vectors > 0, axis=1)
    return packed if precision == "ubinary" else (packed ^ 0x80).view(np.int8)


def _step(ranges):
    step = (ranges[1] - ranges[0]) / _STEPS
    return np.where(step > 0, step, 1)  # a dimension in which all vectors are equal


def _packed(codes, precision):
    """Returns the bytes of "ubinary"."""
    return codes if precision == "ubinary" else codes.view(np.uint8) ^ 0x80


def _byte_scorer(codes, precision, queries):
    largest = 255 if precision == "uint8" else 128
    is_exact = largest**2 * codes.shape[1] <= _EXACT
    queries = queries.astype(np.float32 if is_exact else np.float64)  # [Q, D]

    def scores_of(part):  # [Q, D] x [rows, D] -> [Q, rows]
        return tf.matmul(queries, codes[part].astype(queries.dtype), transpose_b=True)

    return scores_of


def _bit_scorer(codes, precision, queries):
    queries = _words(_packed(queries, precision))  # [Q, W]

    def scores_of(part):
        words = _words(_packed(codes[part], precision))  # [rows, W]
        distances = np.zeros([len(queries), len(words)], np.int32)
        for column in range(words.shape[1]):  # [Q, 1] x [rows] -> [Q, rows]
            distances += _ones(queries[:, column, None] ^ words[:, column])
        return -distances

    return scores_of


def _words(packed):
    """Returns packed bits as words of 64 bits, filled up with zeros."""
    padded = np.pad(packed, [(0, 0), (0, -packed.shape[1] % 8)])
    return np.ascontiguousarray(padded).view(np.uint64)


def _ones(words):
    """Returns the number of bits that are 1 in each word."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    return _ONES[words[..., None].view(np.uint8)].sum(axis=-1, dtype=np.int32)  # NumPy 1


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def _rescored(queries, codes, rows, k, precision, ranges):
    found = np.asarray(codes[rows])  # [Q, found, bytes]
    if precision in BITS:
        bits = np.unpackbits(_packed(found, precision), axis=2, count=queries.shape[1])
        vectors = (2 * bits.astype(np.float32) - 1) / np.sqrt(queries.shape[1], dtype=np.float32)
    else:
        vectors = decoded_bytes(found, precision, ranges)
    scores = np.einsum("qd,qfd->qf", np.asarray(queries, np.float32), vectors)
    order = np.lexsort((rows, -scores))[:, :k]
    return np.take_along_axis(scores, order, 1), np.take_along_axis(rows, order, 1)
