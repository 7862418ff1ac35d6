"""What a step becomes on a GPU: its reading from HLO, and its budgets in tests/budgets.json."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.gpu_program.optimized_hlo import Program, bandwidth, size
from tests.conftest import REPOSITORY
from tests.test_budgets import BUDGETS

TEXT = """HloModule step

%fused (p: f32[4,8]) -> f32[4] {
  %p = f32[4,8]{1,0} parameter(0)
  ROOT %r = f32[4]{0} reduce(%p), dimensions={1}
}

%product (a: bf16[4,8], b: bf16[8,2]) -> bf16[4,2] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = bf16[8,2]{1,0} parameter(1)
  ROOT %d = bf16[4,2]{1,0} dot(%a, %b)
}

ENTRY %main (x: f32[4,8], y: bf16[8,2]) -> (f32[4], bf16[4,2]) {
  %x = f32[4,8]{1,0} parameter(0)
  %y = bf16[8,2]{1,0} parameter(1)
  %sum = f32[4]{0} fusion(%x), kind=kInput, calls=%fused
  %half = bf16[4,8]{1,0} convert(%x)
  %dot = bf16[4,2]{1,0} fusion(%half, %y), kind=kCustom, calls=%product
  %call = (bf16[4,8]{1,0}, s8[0]{0}) custom-call(%half), custom_call_target="__cublas$gemm"
  %gelu = bf16[4,8]{1,0} custom-call(%half), custom_call_target="BertTf>FusedBiasGelu"
  ROOT %both = (f32[4]{0}, bf16[4,2]{1,0}) tuple(%sum, %dot)
}
"""


def test_reads_the_kernels():
    kernels = Program.parse(TEXT).kernels
    assert [(kernel.kind, kernel.bytes) for kernel in kernels] == [
        ("fusion with reduce", 4 * 32 + 4 * 4),
        ("convert", 4 * 32 + 2 * 32),
        ("matmul of Triton", 2 * 8 + 2 * 32 + 2 * 16),
        ("matmul", 2 * 32 + 2 * 32),
        ("BertTf>FusedBiasGelu", 2 * 32 + 2 * 32),
    ]
    summary = Program.parse(TEXT).summary(1e6)
    assert summary["kernels"] == 5
    assert summary["floor of these in ms"] == round(1e3 * (144 + 192 + 128) / 1e6, 2)
    assert summary["matrix multiplications"] == {"bf16 -> bf16": 2}


def test_sizes():
    assert size("(f32[2,3]{1,0}, pred[5])") == 29
    assert bandwidth("x { memory_bandwidth: 3352320000000 }") == 3.35232e12


@pytest.mark.full
def test_budgets_of_a_step(tmp_path):
    """Without JAX only the operations are counted: BERT_TF_JAX_PYTHON names a Python with it."""
    compiler = os.environ.get("BERT_TF_JAX_PYTHON", "")
    command = [sys.executable, "-m", "benchmarks.gpu_program", "--ops=native"]
    flags = [f"--compiler_python={compiler}", f"--json={tmp_path}/found.json"]
    subprocess.run([*command, *flags], cwd=REPOSITORY, check=True)
    found = json.loads((tmp_path / "found.json").read_text())["native"]
    for name, most in BUDGETS["gpu_step"].items():
        if name == "operations" or compiler:
            assert found[name] <= most, name
