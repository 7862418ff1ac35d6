"""How bodies are parsed: counted first, and without stopping the other threads."""

import json
import random
import sys
import threading
import time

import pytest

from bert_tf.server.errors import RequestError
from bert_tf.server.json_bodies import parse_object

_TEXTS = ("", "a, b", '"[{', "\\", '\\"', "\\\\[", "漢\n\u2028", "]}")


def _random_value(random_, depth):
    kind = random_.randrange(5 if depth else 3)
    if kind == 0:
        return random_.choice(_TEXTS)
    if kind < 3:
        return random_.choice((1, -2.5, True, None))
    values = [_random_value(random_, depth - 1) for _ in range(random_.randrange(4))]
    return values if kind == 3 else dict(zip(_TEXTS, values))


def _elements(value):
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(_elements, value.values()))
    return 1 + sum(map(_elements, value)) if isinstance(value, list) else isinstance(value, str)


@pytest.mark.parametrize("ensure_ascii", [True, False])
def test_the_count_of_elements_is_exact(ensure_ascii):
    random_ = random.Random(0)
    for _ in range(200):
        document = {"x": _random_value(random_, 4)}
        body = json.dumps(document, ensure_ascii=ensure_ascii).encode()
        elements = _elements(document)
        assert parse_object(body, elements) == document
        with pytest.raises(RequestError, match=rf"objects. Received: {elements}\.$"):
            parse_object(body, elements - 1)


def test_numbers_are_those_of_json():
    text = "[0, -0, 1e3, 2.5, -1E-400, 123456789012345678901234567890, NaN, Infinity, -Infinity]"
    parsed = parse_object(f'{{"x": {text}}}'.encode(), 10)["x"]
    assert repr(parsed) == repr(json.loads(text))


@pytest.mark.parametrize("number", ["0", "0.5", "NaN"])
def test_other_threads_run_while_millions_of_numbers_are_parsed(number):
    """A single call into C code would let this thread run once or twice."""
    body = f'{{"x": [{f"{number}," * 500_000}0]}}'.encode()
    thread = threading.Thread(target=parse_object, args=(body, 10))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        thread.start()
        turns = 0
        while thread.is_alive():
            time.sleep(0)
            turns += 1
    finally:
        sys.setswitchinterval(interval)
    assert turns > 20
