"""How the form of the kernels is chosen: the decision by a table, and the table of tiny blocks."""

import itertools
import types

import pytest

from bert_tf import BertBackbone
from bert_tf.layers import kernel_choice
from bert_tf.layers.kernels import PrepackedKernel

PLAIN = {"plain": None}
FORMS = {**PLAIN, "float32": "float32", "bfloat16": "bfloat16"}


@pytest.fixture(scope="module")
def blocks(tiny_config):
    return BertBackbone(tiny_config).encoder.blocks


def kernels_of(blocks):
    return [dense.kernel_impl for block in blocks for dense in block.dense_layers().values()]


@pytest.mark.parametrize(
    "form, seconds",
    [
        ("plain", {"plain": [1.0, 30.0], "float32": [2.0, 40.0], "bfloat16": [3.0, 50.0]}),
        ("plain", {"plain": [1.0, 30.0], "float32": [0.4, 36.0]}),  # slower for one size
        ("float32", {"plain": [1.0, 30.0], "float32": [0.4, 30.3]}),  # slower by noise
        ("float32", {"plain": [1.0, 30.0], "float32": [0.7, 27.0], "bfloat16": [0.2, 36.0]}),
        ("float32", {"plain": [1.0, 30.0], "float32": [0.4, 27.0], "bfloat16": [0.9, 25.0]}),
        ("bfloat16", {"plain": [1.0, 30.0], "float32": [0.6, 27.0], "bfloat16": [0.3, 15.0]}),
        ("plain", {"plain": [1.0, 30.0]}),
    ],
)
def test_the_fastest_form_that_is_slower_for_no_size_is_picked(form, seconds):
    sizes = (1, 512)
    table = {n: {name: seconds[name][i] for name in seconds} for i, n in enumerate(sizes)}
    assert kernel_choice.pick(table) == form


def test_every_form_is_timed_for_every_size_and_the_blocks_stay_as_they_are(blocks):
    before = kernels_of(blocks)
    table = kernel_choice.measure(blocks, FORMS)
    assert list(table) == [1, 16, 128, 512]
    for seconds in table.values():
        assert list(seconds) == list(FORMS)
        assert all(0.0 < value < 10.0 for value in seconds.values())
    assert kernels_of(blocks) == before


def test_prepacked_kernels_are_what_is_timed(blocks, monkeypatch):
    def fail(self, x, epilogue):
        raise ZeroDivisionError

    before = kernels_of(blocks)
    monkeypatch.setattr(PrepackedKernel, "apply", fail)
    kernel_choice.measure(blocks, PLAIN)
    with pytest.raises(ZeroDivisionError):
        kernel_choice.measure(blocks, FORMS)
    assert kernels_of(blocks) == before


@pytest.mark.parametrize("later", [0.5e-3, 2e-3])
def test_what_seems_slower_is_timed_again(blocks, monkeypatch, later):
    """The clock shows 1 ms for the plain form, and 2 ms for the other in the first rounds."""
    steps = itertools.chain([1e-3, 2e-3] * 16, itertools.cycle([1e-3, later]))
    clock = itertools.accumulate(seconds for step in steps for seconds in (0.0, step))
    now = types.SimpleNamespace(process_time=lambda: next(clock))
    monkeypatch.setattr(kernel_choice, "time", now)
    monkeypatch.setattr(kernel_choice, "BATCHES", [(1, 1)])
    seconds = kernel_choice.measure(blocks, {"plain": None, "float32": "float32"})[1]
    assert seconds == pytest.approx({"plain": 1e-3, "float32": later}, rel=1e-6)
