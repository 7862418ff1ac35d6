"""Requests to classify and to regress: `tf.train.Example`s come in, scores or numbers go out.

A signature takes them if its only input is one string per example, `inputs` or `examples`. The
outputs are TensorFlow Serving's, or those that `bert_tf.serving.export` writes:

    classify    `classes` and `scores` `[B, C]`; or `probabilities` of the labels of the model
    regress     `outputs` or `score`, `[B]` or `[B, 1]`

Reference: tensorflow_serving/apis/{input,classification,regression}.proto, util/json_tensor.cc,
servables/tensorflow/{classifier,regressor,util}.cc.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.server.errors import invalid
from bert_tf.server.json_bodies import abridge
from bert_tf.server.json_tensors import array_text, is_base64, json_text, string_bytes
from bert_tf.server.model_requests import ModelRequests, find_signature
from bert_tf.server.served_model import ServedModel
from bert_tf.server.signatures import BINARY_NAMES, DEFAULT_SIGNATURE, Signature, check_length

CLASSIFY, REGRESS = "classify", "regress"
_EXAMPLES = "examples"  # a signature of `bert_tf.serving.export`
_OUTPUTS = {CLASSIFY: ("classes", "scores", "probabilities"), REGRESS: ("outputs", "score")}
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_VALUES_AT_ONCE = 1 << 14  # a longer call into C code would stop the other threads


class Classes(NamedTuple):
    """The labels and scores of the examples of a request."""

    labels: list[list[str]]
    scores: np.ndarray  # [B, C]


def find_example_signature(model: ServedModel, name: str, method: str) -> Signature:
    """Returns the signature that answers `CLASSIFY` or `REGRESS`.

    An empty name is the default signature, or `examples` if that one takes no examples.

    Raises:
        RequestError: If there is no such signature, or it cannot answer.
    """
    signature = find_signature(model, name)
    if signature.name == DEFAULT_SIGNATURE and _EXAMPLES in model.signatures:
        signature = signature if _takes_examples(signature) else model.signatures[_EXAMPLES]
    if not _takes_examples(signature) or signature.outputs.keys().isdisjoint(_OUTPUTS[method]):
        raise invalid(
            f"To {method}, signature {signature.name} must have one string input, inputs or "
            f"examples, and an output {' or '.join(_OUTPUTS[method])}. Received: inputs "
            f"{', '.join(signature.inputs)}; outputs {', '.join(signature.outputs)}"
        )
    return signature


def _takes_examples(signature):
    ((name, spec), *others) = signature.inputs.items() or [("", None)]
    return name in BINARY_NAMES and not others and spec.is_text and spec.shape == (None,)


def example_arrays(
    requests: ModelRequests, signature: Signature, examples: Sequence[bytes], context: bytes = b""
) -> dict[str, np.ndarray]:
    """Returns the input of the signature: serialised examples, each with the context's features.

    Raises:
        RequestError: If there are none, or they are above a limit.
    """
    if not examples:
        raise invalid("Input is empty.")
    requests.check_rows(len(examples))
    requests.check_texts(sum(map(len, examples)) + len(context) * len(examples))
    (name,) = signature.inputs
    array = np.empty(len(examples), object)
    # Protobuf merges messages that follow each other: the features of the example come last.
    array[:] = [context + example for example in examples]
    check_length(name, max(map(len, array)), requests.limits.max_text_length)
    return {name: array}


def read_json_examples(
    document: Mapping[str, Any], max_text_length: int
) -> tuple[list[bytes], bytes]:
    """Returns the serialised examples of the body of a request, and their context.

    Raises:
        RequestError: If it is not in TensorFlow Serving's form.
    """
    examples = document.get("examples")
    if not isinstance(examples, list) or not examples:
        shown = abridge(document)
        raise invalid(f"JSON Value: {shown} 'examples' must be a list with at least one example")
    context = _example(document.get("context", {}), max_text_length)
    return [_example(values, max_text_length) for values in examples], context


def _example(values, max_text_length):
    if not isinstance(values, dict):
        raise invalid(f"Example must be JSON object but got JSON {abridge(values)}")
    example = tf.train.Example()
    for name, value in values.items():
        try:
            feature = example.features.feature[name]
        except UnicodeEncodeError:
            raise invalid(
                f"The name of a feature must be valid. Received: {abridge(name)}"
            ) from None
        _fill(feature, name, value if isinstance(value, list) else [value], max_text_length)
    return example.SerializeToString()


def _fill(feature, name, values, max_text_length):
    name = name[:100]  # in errors
    kinds = {_kind(name, value) for value in values}
    if len(kinds) > 1:
        raise invalid(
            f"Feature {name} must have values of one type. Received: {', '.join(sorted(kinds))}"
        )
    if not kinds:
        return
    (kind,) = kinds
    if kind == "bytes_list":
        values = [string_bytes(value, name, True, max_text_length) for value in values]
    if kind == "float_list" and any(_FLOAT32_MAX < abs(value) < math.inf for value in values):
        raise invalid(f"Feature {name} must have float32 values. Received: a larger one")
    target = getattr(feature, kind).value
    try:
        for start in range(0, len(values), _VALUES_AT_ONCE):
            target.extend(values[start : start + _VALUES_AT_ONCE])
    except (ValueError, OverflowError):
        raise invalid(f"Feature {name} must have int64 values. Received: a larger one") from None


def _kind(name, value):
    if isinstance(value, str) or (isinstance(value, dict) and is_base64(value)):
        return "bytes_list"
    if isinstance(value, int):  # true and false too, as 1 and 0
        return "int64_list"
    if isinstance(value, float):
        return "float_list"
    raise invalid(f"Feature: {name} has element with unexpected JSON type: {abridge(value)}")


def read_classes(outputs: Mapping[str, np.ndarray], labels: Sequence[str]) -> Classes:
    """Returns the result of `CLASSIFY`; `labels` are those of the model's description.

    Raises:
        RequestError: If the outputs are not `[B, C]`, or have other dtypes.
    """
    classes, scores = outputs.get("classes"), outputs.get("scores", outputs.get("probabilities"))
    scores = np.zeros(classes.shape, np.float32) if scores is None else scores
    if scores.ndim != 2 or (classes is not None and classes.shape != scores.shape):
        shapes = [list(array.shape) for array in (classes, scores) if array is not None]
        raise invalid(
            "Expected Tensor shape: [batch_size num_classes] but got "
            f"{' and '.join(map(str, shapes))}"
        )
    if scores.dtype.kind == "O" or (classes is not None and classes.dtype.kind != "O"):
        raise invalid("Expected strings as classes and numbers as scores but got other dtypes")
    if classes is not None:
        names = [[label.decode("utf-8", "replace") for label in row] for row in classes.tolist()]
    else:
        known = list(labels) if len(labels) == scores.shape[1] else [""] * scores.shape[1]
        names = [known] * len(scores)
    return Classes(names, scores)


def read_numbers(outputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the result of `REGRESS`, `[B]`.

    Raises:
        RequestError: If the outputs are more than a number per example.
    """
    array = outputs["outputs" if "outputs" in outputs else "score"]
    if array.ndim not in (1, 2) or array.dtype.kind == "O" or array.shape[1:] not in ((), (1,)):
        shape = list(array.shape)
        raise invalid(f"Expected Tensor shape: [batch_size] or [batch_size 1] but got {shape}")
    return array.reshape(-1)


def json_parts(
    method: str, labels: Sequence[str], outputs: Mapping[str, np.ndarray]
) -> Iterator[str]:
    """Returns a generator of the JSON of an answer in parts; raises as `read_classes`."""
    if method == REGRESS:
        return iter([f'{{"results": {array_text(read_numbers(outputs))}}}\n'])
    return _class_parts(read_classes(outputs, labels))


def _class_parts(found):
    yield '{"results": ['
    for row, (names, scores) in enumerate(zip(found.labels, found.scores, strict=True)):
        pairs = (f"[{json_text(name)}, {array_text(s)}]" for name, s in zip(names, scores))
        yield (", [" if row else "[") + ", ".join(pairs) + "]"
    yield "]}\n"
