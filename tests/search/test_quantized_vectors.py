"""Codes and the search on them, against slow definitions and sentence-transformers."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.search import (
    best_rows,
    quantize_vectors,
    quantized_top_k,
    quantized_vectors,
    top_k,
    vector_ranges,
)

PRECISIONS = ("int8", "uint8", "binary", "ubinary")
BITS = ("binary", "ubinary")


def random_vectors(count, size, seed=0):
    return np.random.default_rng(seed).standard_normal([count, size]).astype(np.float32)


def slow_codes(vectors, precision, ranges):
    if precision in ("int8", "uint8"):
        least = -128 if precision == "int8" else 0
        step = (ranges[1] - ranges[0]) / 255
        codes = np.floor((vectors - ranges[0]) / step)
        return (np.clip(codes, 0, 255) + least).astype(precision)
    rows = []
    for vector in vectors:
        bits = "".join("1" if value > 0 else "0" for value in vector)
        bits += "0" * (-len(bits) % 8)
        rows.append([int(bits[place : place + 8], 2) for place in range(0, len(bits), 8)])
    shift = 128 if precision == "binary" else 0
    return (np.array(rows) - shift).astype("int8" if shift else "uint8")


def slow_order(queries, codes, precision):
    """The rows in order for each query, and their scores."""
    if precision in BITS:
        values = codes.astype(int) + (128 if precision == "binary" else 0)
        other = queries.astype(int) + (128 if precision == "binary" else 0)
        bits, other = (np.unpackbits(x.astype(np.uint8), axis=1) for x in (values, other))
        scores = (other[:, None] != bits).sum(axis=2)
        return np.argsort(scores, axis=1, kind="stable"), scores
    scores = queries.astype(int) @ codes.astype(int).T
    return np.argsort(-scores, axis=1, kind="stable"), scores


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("size", [1, 7, 8, 65])
def test_codes(precision, size, monkeypatch):
    monkeypatch.setattr(best_rows, "BLOCK_FLOATS", 100)
    vectors, sample = random_vectors(33, size), random_vectors(50, size, seed=1)
    own = vector_ranges(vectors)
    np.testing.assert_array_equal(own, [vectors.min(axis=0), vectors.max(axis=0)])
    np.testing.assert_array_equal(
        quantize_vectors(vectors, precision), slow_codes(vectors, precision, own)
    )
    ranges = vector_ranges(sample) / 2  # many values are outside
    codes = quantize_vectors(vectors, precision, ranges)
    np.testing.assert_array_equal(codes, slow_codes(vectors, precision, ranges))
    assert quantize_vectors(vectors[:0], precision, ranges).shape == (0, codes.shape[1])


def test_a_dimension_in_which_all_vectors_are_equal():
    codes = quantize_vectors(np.array([[3.0, 0.0], [3.0, 1.0]]), "int8")
    assert codes[:, 0].tolist() == [-128, -128] and codes[0, 1] == -128 and codes[1, 1] > 125


@pytest.mark.parametrize("precision", PRECISIONS)
def test_search_on_codes_is_exact(precision, monkeypatch, tmp_path):
    monkeypatch.setattr(best_rows, "BLOCK_FLOATS", 3000)
    monkeypatch.setattr(best_rows, "QUERIES", 4)
    vectors = random_vectors(211, 70)
    vectors[100:150] = vectors[:50]  # ties
    codes = quantize_vectors(vectors, precision)
    queries = quantize_vectors(random_vectors(9, 70, 1), precision, vector_ranges(vectors))
    file = np.memmap(tmp_path / "codes", codes.dtype, "w+", shape=codes.shape)
    file[:] = codes
    order, scores = slow_order(queries, codes, precision)
    for k in (1, 12, 500):
        found = quantized_top_k(queries, file, k, precision)
        np.testing.assert_array_equal(found[1], order[:, :k])
        np.testing.assert_array_equal(found[0], np.take_along_axis(scores, order[:, :k], 1))
        assert found[0].dtype == found[1].dtype == np.int64


def test_bits_are_counted_without_numpy_2(monkeypatch):
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    codes = quantize_vectors(random_vectors(40, 100), "ubinary")
    order, _ = slow_order(codes[:3], codes, "ubinary")
    np.testing.assert_array_equal(quantized_top_k(codes[:3], codes, 40, "ubinary")[1], order)


def test_dot_products_that_float32_cannot_hold():
    codes = np.full([2, 1031], 255, np.uint8)
    codes[1, 0] = 254
    scores, rows = quantized_top_k(codes[1:], codes, 2, "uint8")
    assert rows.tolist() == [[0, 1]]
    assert scores.tolist() == [[255**2 * 1030 + 255 * 254, 255**2 * 1030 + 254**2]]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_float_queries_score_the_best_again(precision, monkeypatch):
    monkeypatch.setattr(best_rows, "BLOCK_FLOATS", 5000)
    vectors, queries = random_vectors(300, 50), random_vectors(11, 50, 1)
    ranges = vector_ranges(vectors)
    codes = quantize_vectors(vectors, precision)
    coded = quantize_vectors(queries, precision, ranges)
    if precision in BITS:
        decoded = np.where(vectors > 0, 1, -1) / np.sqrt(50)
    else:
        least = -128 if precision == "int8" else 0
        middle = codes + 0.5
        decoded = (middle - least) * (ranges[1] - ranges[0]) / 255 + ranges[0]
        decoded = np.minimum(decoded, ranges[1])  # the last code is the largest value alone
    order, _ = slow_order(coded, codes, precision)
    scores, rows = quantized_top_k(queries, codes, 5, precision, ranges, rescore_multiplier=3)
    assert scores.dtype == np.float32
    for query, candidates, score, row in zip(queries, order[:, :15], scores, rows):
        values = decoded[candidates] @ query
        best = np.argsort(-values)[:5]
        np.testing.assert_array_equal(row, candidates[best])
        np.testing.assert_allclose(score, values[best], rtol=1e-4, atol=1e-4)
    plain = quantized_top_k(queries, codes, 5, precision, ranges, rescore_multiplier=0)
    np.testing.assert_array_equal(plain[1], order[:, :5])
    none = quantized_top_k(queries[:0], codes, 5, precision, ranges)
    assert none[0].shape == none[1].shape == (0, 5) and none[0].dtype == np.float32


def test_scoring_all_again_is_the_search_on_floats():
    vectors, queries = random_vectors(100, 40), random_vectors(8, 40, 1)
    ranges = vector_ranges(vectors)
    codes = quantize_vectors(vectors, "int8")
    found = quantized_top_k(queries, codes, 3, "int8", ranges, rescore_multiplier=100)
    scores, rows = top_k(queries, vectors, 3, "dot")
    np.testing.assert_array_equal(found[1][:, 0], rows[:, 0])
    np.testing.assert_allclose(found[0], scores, atol=0.1)


def test_a_dimension_in_which_all_vectors_are_equal_has_its_value_in_scores():
    vectors = np.array([[0.0, 3.0], [1.0, 3.0]], np.float32)
    ranges = vector_ranges(vectors)
    codes = quantize_vectors(vectors, "int8", ranges)
    scores, rows = quantized_top_k(np.array([[1.0, 2.0]]), codes, 2, "int8", ranges)
    assert rows.tolist() == [[1, 0]]
    np.testing.assert_allclose(scores, [[7.0, 6.0]], atol=1 / 255)


def test_refusals():
    codes = quantize_vectors(random_vectors(4, 8), "int8")
    floats = random_vectors(2, 8)
    ranges = vector_ranges(floats)
    wrong = [
        (quantize_vectors, codes, "int8"),
        (quantize_vectors, floats, "int4"),
        (quantize_vectors, floats[0], "int8"),
        (quantize_vectors, np.full([2, 3], np.nan), "int8"),
        (quantize_vectors, np.full([2, 3], np.inf), "binary"),
        (quantize_vectors, floats, "int8", ranges[:, :3]),
        (quantize_vectors, floats, "int8", ranges[::-1]),
        (quantize_vectors, floats[:0], "int8"),
        (quantized_top_k, floats, codes, 0, "int8", ranges),
        (quantized_top_k, floats, codes[:0], 1, "int8", ranges),
        (quantized_top_k, floats, codes, 1, "int8"),
        (quantized_top_k, floats, codes, 1, "uint8", ranges),
        (quantized_top_k, floats, codes, 1, "ubinary"),
        (quantized_top_k, codes.view(np.uint8), codes, 1, "int8"),
        (quantized_top_k, codes[:, :3], codes, 1, "int8"),
        (quantized_top_k, floats, codes, 1, "int8", ranges, -1),
        (quantized_top_k, np.full([2, 8], np.nan), codes, 1, "int8", ranges),
    ]
    for function, *arguments in wrong:
        with pytest.raises(UserError, match="Received"):
            function(*arguments)


@pytest.mark.peers
@pytest.mark.parametrize("precision", PRECISIONS)
def test_codes_of_sentence_transformers(precision):
    quantization = pytest.importorskip(
        "sentence_transformers.quantization", reason="needs sentence-transformers"
    )
    vectors, sample = random_vectors(120, 64), random_vectors(500, 64, 1) * 3
    for ranges in (None, np.stack([sample.min(axis=0), sample.max(axis=0)])):
        expected = quantization.quantize_embeddings(vectors, precision, ranges)
        codes = quantize_vectors(vectors, precision, ranges)
        np.testing.assert_array_equal(codes, expected)
        assert codes.dtype == expected.dtype


def test_the_public_precisions():
    assert set(quantized_vectors.BYTES + quantized_vectors.BITS) == set(PRECISIONS)
