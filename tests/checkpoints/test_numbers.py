"""The numbers of a network, from whatever file, within DESIGN's bound of the float64 reference."""

import functools

import numpy as np
import pytest

from bert_tf import BertBackbone
from tests.checkpoints import foreign
from tests.checkpoints.test_formats import FORMATS, assert_same_values, values_of, write
from tests.numpy_bert import NumpyBert, error_bound

LENGTHS = (1, 2, 128)
MANY_LENGTHS = (*LENGTHS, 512)
# What a file says about the activation -> what the network computes.
HUGGINGFACE = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
}
GOOGLE = {"gelu": "gelu_new", "relu": "relu", "silu": "silu"}  # None: a file that says nothing
SAID = {
    **dict.fromkeys(FORMATS, HUGGINGFACE),
    "tf1": GOOGLE,
    "tf models": {None: "gelu_new", **GOOGLE},
    "keras_hub": {None: "gelu_new"},
}
CASES = [(format, *case) for format, said in SAID.items() for case in said.items()]
CASES = [  # each format once and each activation once, or all
    case
    if case[0] == "safetensors" or case[1] == next(iter(SAID[case[0]]))
    else pytest.param(*case, marks=pytest.mark.full)
    for case in CASES
]


@pytest.fixture(scope="module")
def expected(tmp_path_factory, is_full):
    """For an activation: batches without and with padding, their outputs, the errors allowed."""
    plain = tmp_path_factory.mktemp("plain")
    foreign.write_huggingface(plain, foreign.random_tensors())

    @functools.cache
    def batches(activation):
        exact = NumpyBert(plain, activation=activation)
        rough = NumpyBert(plain, np.float32, activation)
        found = []
        for longest in MANY_LENGTHS if is_full else LENGTHS:
            for lengths in ([longest], [longest, (longest + 1) // 2]):
                inputs = foreign.token_inputs(lengths, longest)
                outputs = exact(**inputs)[:2]
                bounds = [error_bound(*pair) for pair in zip(outputs, rough(**inputs))]
                found.append((inputs, outputs, bounds))
        return found

    return batches


@pytest.mark.parametrize("format,said,computed", CASES)
def test_numbers(format, said, computed, expected, tmp_path):
    changes = {} if said is None else {"hidden_act": said}
    path = write(format, tmp_path, foreign.random_tensors(), **changes)
    backbone = BertBackbone.from_pretrained(path)
    for inputs, outputs, bounds in expected(computed):
        received = backbone(inputs)
        for name, values, bound in zip(("sequence_output", "pooled_output"), outputs, bounds):
            assert np.abs(received[name] - values).max() <= bound, (values.shape, name)


def test_minilm_numbers_through_other_formats(minilm, tmp_path, is_full):
    original = BertBackbone.from_pretrained(minilm)
    exact, rough = NumpyBert(minilm), NumpyBert(minilm, np.float32)
    original.save_pretrained(tmp_path / "tf1", format="tf1")
    opened = BertBackbone.from_pretrained(tmp_path / "tf1")
    assert opened.config.hidden_act == "gelu"
    assert_same_values(values_of(opened), values_of(original))
    for longest in MANY_LENGTHS if is_full else LENGTHS:
        lengths = [longest, (longest + 1) // 2]
        inputs = foreign.token_inputs(lengths, longest, vocab_size=30000)
        outputs = opened(inputs)
        expected, plain32 = exact(**inputs), rough(**inputs)
        bound = error_bound(expected[0], plain32[0])
        assert np.abs(outputs["sequence_output"] - expected[0]).max() <= bound, longest
