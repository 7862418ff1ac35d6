"""What a step becomes on a GPU: its reading from HLO, and its budgets in tests/budgets.json."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks.gpu_program.optimized_hlo import Program, bandwidth, size
from tests.conftest import REPOSITORY
from tests.test_budgets import BUDGETS

# of a `BertPretrainer` with one block of BERT-base
NUM_WEIGHTS = (
    (30522 + 2 + 512 + 2) * 768  # embeddings and their LayerNorm
    + (4 * (768 + 1) + 2 * 3072 + 4) * 768 + 3072 + 768  # the block
    + (768 + 1) * 768  # pooler
    + (768 + 3) * 768 + 30522 + 2 * (768 + 1)  # both heads
)  # fmt: skip

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


def test_counts_all_reduces():
    """The end of one launches nothing, and its bytes are not those of the memory."""
    sums = """
  %start = bf16[8]{0} all-reduce-start(%y), replica_groups={{0,1}}, to_apply=%add
  %done = bf16[8]{0} all-reduce-done(%start)
  %scalar = f32[] all-reduce(%z), replica_groups={{0,1}}, to_apply=%add
"""
    operands = "  %z = f32[] parameter(2)\n  %y = bf16[8]{0} parameter(1)\n"
    before, after = (
        Program.parse(text).summary(1e6)
        for text in (TEXT, TEXT.replace("  ROOT %both", f"{operands}{sums}  ROOT %both"))
    )
    assert before["all-reduces"] == {} and after["all-reduces"] == {"bf16": 1, "f32": 1}
    assert after["bytes of all-reduces"] == {"bf16": 16, "f32": 4}
    assert after["kernels"] == before["kernels"] + 2
    name = "gigabytes outside matrix multiplications"
    assert after[name] == before[name]


def test_sizes():
    assert size("(f32[2,3]{1,0}, pred[5])") == 29
    assert bandwidth("x { memory_bandwidth: 3352320000000 }") == 3.35232e12


@pytest.mark.full
@pytest.mark.skipif("BERT_TF_JAX_PYTHON" not in os.environ, reason="needs JAX: BERT_TF_JAX_PYTHON")
def test_two_gpus_exchange_the_gradients_in_bfloat16(tmp_path):
    """All gradients in packs, and as float32 only the sums of the loss; see docs/distributed.md."""
    found = []
    for dtype, *more in (("float32",), ("bfloat16", "--all_reduce_bytes_per_pack=26214400")):
        flags = ["--ops=native", "--num_hidden_layers=1", "--workload=2x32", "--num_replicas=2"]
        compiler = os.environ["BERT_TF_JAX_PYTHON"]
        flags += [f"--compiler_python={compiler}", f"--all_reduce_dtype={dtype}", *more]
        command = [sys.executable, "-m", "benchmarks.gpu_program", *flags]
        subprocess.run([*command, f"--json={tmp_path}/found.json"], cwd=REPOSITORY, check=True)
        found.append(json.loads((tmp_path / "found.json").read_text())["native"])
    exact, packed = (one["bytes of all-reduces"] for one in found)
    assert packed["bf16"] == 2 * NUM_WEIGHTS and packed["f32"] < 100
    assert exact == {"f32": 4 * NUM_WEIGHTS + packed["f32"]}
    assert found[1]["all-reduces"]["bf16"] == 2  # the word embeddings alone have 47 MB


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
