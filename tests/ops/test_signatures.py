"""Each reference implementation has the typed signature of its op."""

import inspect
import typing

import pytest

from bert_tf import ops

REFERENCES = [name for name in ops.__all__ if name.endswith("_reference")]


@pytest.mark.parametrize("name", REFERENCES)
def test_a_reference_has_the_signature_of_its_op(name):
    op, reference = getattr(ops, name.removesuffix("_reference")), getattr(ops, name)
    signature = inspect.signature(reference)
    assert signature == inspect.signature(op)
    for parameter in signature.parameters.values():
        assert parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        assert parameter.annotation is not parameter.empty
    assert typing.get_type_hints(reference) == typing.get_type_hints(op)
