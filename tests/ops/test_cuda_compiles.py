"""The CUDA kernels compile where nvcc is, and none of them spills a register.

What they compute is tested without a GPU by //custom_ops/kernels:cuda_kernels_test, and with one by
benchmarks/cuda_kernels.
"""

import concurrent.futures
import sys

import pytest

from benchmarks.cuda_kernels import __main__ as check
from benchmarks.cuda_kernels import build

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


@pytest.fixture(scope="module")
def compilations(request, tmp_path_factory):
    """A future of the kernels of each source that is asked for: they are compiled in parallel."""
    names = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.originalname == "test_compiles_without_spills"
    ]
    nvcc = build.find_nvcc()
    if nvcc is None:
        pytest.skip("needs nvcc in CUDA_HOME or on PATH")
    directory = tmp_path_factory.mktemp("cuda")
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


@pytest.mark.parametrize("program", [check, build])
def test_says_what_is_missing(program, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [program.__name__])
    assert program.main() == 2
    assert "lacks nvcc" in capsys.readouterr().err
