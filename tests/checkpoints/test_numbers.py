"""The numbers of a network, from whatever file, within DESIGN's bound of the float64 reference."""

import os

import numpy as np
import pytest

from bert_tf import BertBackbone
from tests.checkpoints import foreign
from tests.checkpoints.test_formats import FORMATS, assert_same_values, values_of, write
from tests.numpy_bert import NumpyBert, error_bound

LENGTHS = (1, 2, 128, 512)
# What a file says about the activation -> what the network computes.
HUGGINGFACE = {
    "gelu": "gelu", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "relu": "relu", "silu": "silu",
}
GOOGLE = {"gelu": "tanh", "relu": "relu", "silu": "silu"}  # None: a file that says nothing
SAID = {
    **{format: HUGGINGFACE for format in FORMATS},
    "tf1": GOOGLE,
    "tf models": {None: "tanh", **GOOGLE},
    "keras_hub": {None: "tanh"},
}
CASES = [(format, *case) for format, said in SAID.items() for case in said.items()]
if os.environ.get("BERT_TF_FULL") != "1":  # each format once, each activation once
    CASES = [
        case for case in CASES if case[0] == "safetensors" or case[1] == next(iter(SAID[case[0]]))
    ]


class Reference(NumpyBert):
    """The reference with the other activations."""

    def gelu(self, x):
        if self.activation == "relu":
            return np.maximum(x, 0)
        if self.activation == "silu":
            return (x / (1 + np.exp(-x))).astype(self.dtype)
        return super().gelu(x)


@pytest.mark.parametrize("format,said,computed", CASES)
def test_numbers(format, said, computed, tmp_path):
    tensors = foreign.random_tensors()
    plain = tmp_path / "plain"
    foreign.write_huggingface(plain, tensors)
    changes = {} if said is None else {"hidden_act": said}
    backbone = BertBackbone.from_pretrained(write(format, tmp_path / "x", tensors, **changes))
    exact, rough = Reference(plain, activation=computed), Reference(plain, np.float32, computed)
    for longest in LENGTHS:
        for lengths in ([longest], [longest, (longest + 1) // 2]):  # without and with padding
            inputs = foreign.token_inputs(lengths, longest)
            outputs = backbone(inputs)
            expected, plain32 = exact(**inputs), rough(**inputs)
            for index, name in enumerate(("sequence_output", "pooled_output")):
                bound = error_bound(expected[index], plain32[index])
                assert np.abs(outputs[name] - expected[index]).max() <= bound, (longest, name)


def test_minilm_numbers_through_other_formats(minilm, tmp_path):
    original = BertBackbone.from_pretrained(minilm)
    exact, rough = NumpyBert(minilm), NumpyBert(minilm, np.float32)
    original.save_pretrained(tmp_path / "tf1", format="tf1")
    opened = BertBackbone.from_pretrained(tmp_path / "tf1")
    assert opened.config.hidden_act == "gelu"
    assert_same_values(values_of(opened), values_of(original))
    for longest in LENGTHS:
        lengths = [longest, (longest + 1) // 2] if longest < 512 else [400]
        inputs = foreign.token_inputs(lengths, longest, vocab_size=30000)
        outputs = opened(inputs)
        expected, plain32 = exact(**inputs), rough(**inputs)
        bound = error_bound(expected[0], plain32[0])
        assert np.abs(outputs["sequence_output"] - expected[0]).max() <= bound, longest
