"""JSON to arrays and back, for signatures of every kind."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.server.described_inputs import check_described_inputs
from bert_tf.server.errors import RequestError
from bert_tf.server.json_tensors import (
    COLUMNS,
    ROWS,
    answer_parts,
    array_text,
    arrays_of,
    parse_predict,
)
from bert_tf.server.signatures import Signature, TensorSpec, bytes_of

FLOATS = TensorSpec(tf.float32, (None, 2))
STRINGS = TensorSpec(tf.string, (None,))
PAIRS = Signature("pairs", {"pair": STRINGS, "text": STRINGS}, {"y": FLOATS})
NUMBERS = Signature("numbers", {"x": FLOATS}, {"y": FLOATS})


def _arrays(body, signature):
    return arrays_of(parse_predict(json.dumps(body).encode(), 1000), signature, 100)


def test_two_texts():
    for body in (
        {"instances": [{"text": "a", "pair": "b"}, {"text": "c", "pair": ""}]},
        {"inputs": {"text": ["a", "c"], "pair": ["b", ""]}},
    ):
        arrays = _arrays(body, PAIRS)
        assert arrays["text"].tolist() == [b"a", b"c"] and arrays["pair"].tolist() == [b"b", b""]
        assert PAIRS.checked_rows(arrays) == 2
    for body in ({"instances": ["a", "b"]}, {"inputs": ["a", "b"]}):
        with pytest.raises(RequestError, match="multiple input tensors"):
            _arrays(body, PAIRS)
    uneven = _arrays({"inputs": {"text": ["a", "c"], "pair": ["b"]}}, PAIRS)
    with pytest.raises(RequestError, match="the same number of rows"):
        PAIRS.checked_rows(uneven)


def test_numbers():
    arrays = _arrays({"instances": [[1, 2.5], [float("nan"), float("-inf")]]}, NUMBERS)
    np.testing.assert_array_equal(arrays["x"], np.array([[1, 2.5], [np.nan, -np.inf]], np.float32))
    assert arrays["x"].dtype == np.float32
    for rows, message in (
        ([[1, 2], [3]], "unexpected size"),
        ([[1, 2, 3]], "must be float32"),
        ([[1, "2"]], "Type: String"),
        ([[1, True]], "Type: Boolean"),
        ([[[1]], [2]], "level"),
        ([1, 2], "must be float32"),
    ):
        with pytest.raises(RequestError, match=message):
            NUMBERS.checked_rows(_arrays({"instances": rows}, NUMBERS))


@pytest.mark.parametrize(
    ("dtype", "good", "bad"),
    [
        (tf.int32, 2**31 - 1, 2**31),
        (tf.int64, -(2**63), 2**63),
        (tf.uint8, 255, -1),
        (tf.int32, 1, 1.0),
        (tf.bool, True, 1),
        (tf.float64, 1e308, "1"),
    ],
)
def test_types(dtype, good, bad):
    signature = Signature("s", {"x": TensorSpec(dtype, (None,))}, {})
    assert _arrays({"instances": [good]}, signature)["x"].tolist() == [good]
    with pytest.raises(RequestError, match=f"not of expected type: {dtype.name}"):
        _arrays({"instances": [bad]}, signature)


def test_shared_strings_are_counted_once():
    text = np.array([b"a" * 1000], object)
    size = bytes_of({"query": text})
    assert size > 1000
    assert bytes_of({"query": np.repeat(text, 50), "document": text}) == size + 50 * 8


@pytest.mark.parametrize("depth", [64, 65, 900])
def test_dimensions_are_limited(depth):
    """NumPy has at most 64, also where the signature leaves their number open."""
    rows = 0
    for _ in range(depth):
        rows = [rows]
    for shape in (None, (None,)):
        signature = Signature("s", {"x": TensorSpec(tf.int32, shape)}, {})
        if shape is None and depth == 64:
            assert _arrays({"inputs": rows}, signature)["x"].ndim == 64
            continue
        with pytest.raises(RequestError, match=r"must be int32 \[\?\]. Received: int32 \[1, 1,"):
            _arrays({"inputs": rows}, signature)


def test_bytes_need_not_be_text():
    signature = Signature("s", {"examples": STRINGS}, {})
    assert _arrays({"instances": [{"b64": "/w=="}]}, signature)["examples"].tolist() == [b"\xff"]
    with pytest.raises(RequestError, match="at most 100"):
        _arrays({"instances": [{"b64": "A" * 400}]}, signature)


def _answer(format, outputs):
    return "".join(answer_parts(format, outputs))


def test_choices_without_a_text_are_refused():
    choices = Signature("s", {"choices": TensorSpec(tf.string, (None, None))}, {})
    said = {"signatures": {"s": {"inputs": {"choices": {"needs_text": True}, "other": {}}}}}
    check_described_inputs(said, choices, _arrays({"instances": [["", "a"], ["b", ""]]}, choices))
    for rows, message in (
        ([["", "a"], ["", ""]], "`choices` must .* none in row 1"),
        ([[], []], r"`choices` must .* shape=\[2, 0\]"),
    ):
        arrays = _arrays({"instances": rows}, choices)
        with pytest.raises(RequestError, match=message):
            check_described_inputs(said, choices, arrays)
        for nothing in ({}, {"signatures": [1]}, {"signatures": {"s": {"inputs": {"choices": 1}}}}):
            check_described_inputs(nothing, choices, arrays)


def test_answers():
    one = {"y": np.array([[0.2, 1], [np.nan, np.inf]], np.float32)}
    text = _answer(ROWS, one)
    assert text == '{"predictions": [[0.2, 1.0], [NaN, Infinity]]}\n'
    assert _answer(COLUMNS, one) == text.replace("predictions", "outputs")
    two = {
        "label": np.array([b"caf\xc3\xa9", b"\xff"], object),
        "x_bytes": np.array([b"\xff", b""], object),
    }
    assert json.loads(_answer(ROWS, two)) == {
        "predictions": [
            {"label": "café", "x_bytes": {"b64": "/w=="}},
            {"label": "\ufffd", "x_bytes": {"b64": ""}},
        ]
    }
    scalar = Signature("s", NUMBERS.inputs, {"y": TensorSpec(tf.float32, ())})
    with pytest.raises(RequestError, match="column format"):
        _arrays({"instances": [[1, 2]]}, scalar)


@pytest.mark.parametrize(
    "shape",
    [(3,), (0, 2), (2, 0), (40_000,), (2, 20_000), (20_000, 2), (3, 2, 10_000), (1, 1, 40_000)],
)
@pytest.mark.parametrize("dtype", [np.int32, object])
def test_large_answers_come_in_parts_of_bounded_size(shape, dtype):
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    expected = values.tolist()
    if dtype is object:
        values = values.astype("S").astype(object)
        expected = json.loads(json.dumps(expected), parse_int=str)
    ids = np.arange(len(values))
    for outputs, rows in (
        ({"y": values}, expected),
        ({"y": values, "id": ids}, [{"y": y, "id": n} for n, y in enumerate(expected)]),
    ):
        parts = list(answer_parts(ROWS, outputs))
        assert json.loads("".join(parts)) == {"predictions": rows}
        assert max(map(len, parts)) < 400_000
    columns = {"outputs": {"y": expected, "id": ids.tolist()}}
    assert json.loads(_answer(COLUMNS, {"y": values, "id": ids})) == columns


def test_how_large_an_answer_will_be():
    ids, free = TensorSpec(tf.int32, (None, None)), TensorSpec(tf.float32, (None, None, 30_522))
    arrays = {"ids": np.zeros((3, 512), np.int32)}
    signature = Signature("tokens", {"ids": ids}, {"logits": free})
    assert signature.least_answer_bytes(arrays) == 3 * 512 * 30_522 * 4
    # A model may make fewer rows of numbers than an audio input has samples.
    sound = Signature("s", {"x": TensorSpec(tf.float32, (None, None))}, {"y": free})
    assert sound.least_answer_bytes({"x": np.zeros((1, 16_000), np.float32)}) == 30_522 * 4
    unknown = Signature("s", {"ids": ids}, {"y": TensorSpec(tf.float32, None)})
    assert unknown.least_answer_bytes(arrays) == 4


def test_float32_comes_back_the_same():
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 1e-3
    read = np.array(json.loads(array_text(values)), np.float32)
    np.testing.assert_array_equal(read, values)


def test_a_count_says_where_padding_begins():
    signature = Signature(
        "s",
        {"text": STRINGS},
        {
            "entity_count": TensorSpec(tf.int32, (None,)),
            "entity_text": TensorSpec(tf.string, (None, None)),
        },
    )
    assert signature.joins_rows
    counts = np.array([1, 0, 2])
    texts = np.array([[b"a", b""], [b"", b""], [b"b", b"c"]], object)

    def trimmed(rows):
        outputs = {"entity_count": counts[rows], "entity_text": texts[rows]}
        return signature.trimmed(outputs)["entity_text"]

    assert trimmed(slice(0, 2)).tolist() == [[b"a"], [b""]]
    assert trimmed(slice(1, 2)).shape == (1, 0)
    without = Signature("s", signature.inputs, {"entity_text": signature.outputs["entity_text"]})
    assert not without.joins_rows
