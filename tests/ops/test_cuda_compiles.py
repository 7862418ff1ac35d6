"""The CUDA kernels compile where nvcc is, and none of them spills a register.

The machine code of attention keeps the budgets in tests/machine_code.json: instructions per thread
and tile on the fast and on the general path, and registers (with at most 168, a multiprocessor
holds three blocks). They were measured with nvcc 13.0. Whoever raises a number says in the commit
why the kernels are better for it.

What they compute is tested without a GPU by //custom_ops/kernels:cuda_kernels_test, and with one by
benchmarks/cuda_kernels.
"""

import concurrent.futures
import json
import sys

import pytest

from benchmarks.cuda_kernels import __main__ as check
from benchmarks.cuda_kernels import build, machine_code
from tests.conftest import REPOSITORY

# Attention takes nvcc a minute and more.
SOURCES = [
    pytest.param(name, marks=[] if name == "fused_bias_gelu" else [pytest.mark.full])
    for name in build.SOURCES
]
# What is in each source.
KERNELS = {
    "fused_bias_gelu": ("ForwardKernel", "BackwardKernel"),
    "fused_gate": ("GateKernel",),
    "fused_residual_layer_norm_backward": ("BackwardKernel",),
    "fused_residual_layer_norm_forward": ("ForwardKernel",),
    "varlen_attention_backward": ("QueryGradientKernel", "KeyGradientKernel"),
    "varlen_attention_forward": ("ForwardKernel",),
}
BUDGETS = json.loads((REPOSITORY / "tests" / "machine_code.json").read_text())
# A kernel with a loop over tiles: a product, an optional copy of the next tile, an optional mask of
# two instructions, and a loop inside. What is after the loop does not count.
LOOP = """
\t.section\t.text._Z6KernelPf,"ax",@progbits
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   ISETP.GE.AND P0, PT, R0, R1, PT ;
        /*0020*/              @!P0 BRA `(.L_x_1) ;
        /*0030*/                   LDGSTS.E.BYPASS.128 [R2], desc[UR4][R4.64], P1 ;
.L_x_1:
        /*0040*/                   HMMA.16816.F32.BF16 R8, R4, R6, R8 ;
        /*0050*/                   BRA.DIV UR4, `(.L_x_4) ;
        /*0060*/               @P3 BRA P2, `(.L_x_3) ;
.L_x_2:
        /*0070*/                   FSEL R8, R8, -INF , P2 ;
        /*0080*/               @P4 BRA `(.L_x_2) ;
.L_x_3:
        /*0090*/               @P5 BRA `(.L_x_0) ;
        /*00a0*/                   EXIT ;
.L_x_4:
        /*00b0*/                   NOP ;
        /*00c0*/                   BRA `(.L_x_3) ;
\t.section\t.text._Z5OtherPf,"ax",@progbits
        /*0000*/                   EXIT ;
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture(scope="module")
def compilations(request, directory):
    """A future of the kernels of each source that is asked for: they are compiled in parallel."""
    names = {
        item.callspec.params["name"]
        for item in request.session.items
        if "compilations" in getattr(item, "fixturenames", ())
    }
    nvcc = build.find_program("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc in CUDA_HOME or on PATH")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield {
            name: pool.submit(build.compile_kernels, nvcc, name, "sm_90", directory)
            for name in names
        }


@pytest.mark.parametrize("name", SOURCES)
def test_compiles_without_spills(name, compilations):
    kernels = compilations[name].result()
    for element_type in ("float", "BFloat16", "Float16"):
        for expected in KERNELS[name]:
            assert any(
                expected in kernel.name and element_type in kernel.name for kernel in kernels
            ), (expected, element_type)
    assert [kernel for kernel in kernels if kernel.spill_bytes] == []


@pytest.mark.full
@pytest.mark.parametrize("name", machine_code.SOURCES)
def test_machine_code_keeps_its_budgets(name, compilations, directory):
    nvdisasm = build.find_program("nvdisasm")
    if nvdisasm is None:
        pytest.skip("needs nvcc and nvdisasm in CUDA_HOME or on PATH")
    registers = {kernel.name: kernel.registers for kernel in compilations[name].result()}
    costs = machine_code.count_instructions(nvdisasm, build.cubin_of(name, directory))
    found = {
        kernel: {
            "fast": costs[kernel].fast,
            "general": costs[kernel].general,
            "registers": registers[kernel],
        }
        for kernel in BUDGETS[name]
    }
    over = [
        f"{kernel}: {number} is {found[kernel][number]}, at most {most}"
        for kernel, budget in BUDGETS[name].items()
        for number, most in budget.items()
        if found[kernel][number] > most
    ]
    assert over == []


def test_counts_the_instructions_of_a_tile():
    ((name, cost),) = machine_code.read_machine_code(LOOP)
    assert name == "_Z6KernelPf"
    assert cost == machine_code.TileCost(fast=7, general=9)
    without_copy = LOOP.replace("LDGSTS", "LDG")
    ((_, cost),) = machine_code.read_machine_code(without_copy)
    assert cost == machine_code.TileCost(fast=6, general=9)


def test_reads_what_ptxas_says():
    report = """
ptxas info    : Compiling entry function '_ZN7bert_tf4cuda6KernelIfEEvv' for 'sm_80'
ptxas info    : Function properties for _ZN7bert_tf4cuda6KernelIfEEvv
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8 bytes cumulative stack size
ptxas info    : Compiling entry function '_ZN7bert_tf4cuda6KernelIfEEvv' for 'sm_90'
ptxas info    : Function properties for _ZN7bert_tf4cuda6KernelIfEEvv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers
"""
    kernels = build.read_report(report)
    assert [(kernel.architecture, kernel.registers, kernel.spill_bytes) for kernel in kernels] == [
        ("sm_80", 255, 28),
        ("sm_90", 40, 0),
    ]
    header, _, row = build.resource_table(kernels).splitlines()
    assert header == "| registers | sm_80 | sm_90 |"
    assert row.endswith("| 255 + 28 bytes | 40 |")


@pytest.mark.parametrize("program", [check, build, machine_code])
def test_says_what_is_missing(program, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [program.__name__])
    assert program.main() == 2
    assert "lacks nvcc" in capsys.readouterr().err
