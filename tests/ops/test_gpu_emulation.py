"""The tests of ops and of models under XLA through the GPU's OpKernels, lowerings and handlers.

gpu_emulation.py lets the CUDA kernels run on the CPU, also those that NVRTC and a driver find.

In processes of their own: this one has the CPU's kernels.
"""

import os
import re
import subprocess
import sys

import pytest

import configure
from benchmarks.cuda_kernels import build as cuda_kernels
from benchmarks.gpu_runs import session
from bert_tf.ops import native
from tests.conftest import REPOSITORY

pytestmark = pytest.mark.full

# What a GPU does otherwise (docs/performance/gpu.md, "Known limits"), and what it cannot show.
LEFT_OUT = (
    "x128-",  # heads of up to 64
    "test_bad_row_splits_are_refused",  # row splits are not checked
    "test_row_splits_are_checked_when_the_program_runs",
    "test_not_a_number_stays_where_it_is_seen",  # it spreads inside a tile of 64 keys
    "dense",  # no GPU kernel: the reference, whose bits are not the same under XLA
    "feed_forward",  # likewise
    "test_what_no_block_attends_to_may_be_infinite",  # no GPU kernel: the reference spreads it
    "kinds",  # vectors of distances, likewise
    "quantized_attention",  # likewise
    "varlen_cross_attention",  # likewise
    "rms_norm",  # likewise
    "compute_bfloat16",  # compute_dtype is ignored
    "test_products_in_bfloat16",  # likewise
    "test_a_long_sequence_needs_memory_linear_in_its_length",  # the CPU's memory; minutes
)


def build(*targets):
    """Builds targets of custom_ops with Bazel and returns their files."""
    if native.library() is None:
        pytest.skip("needs the native ops")
    if not configure.has_xla_headers():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    return session.built(*targets)


@pytest.fixture(scope="module")
def emulated_gpu():
    (path,) = build("xla:_bert_tf_emulated_gpu.so")
    return {"BERT_TF_EMULATED_GPU": str(path)}


@pytest.fixture(scope="module")
def emulated_driver(tmp_path_factory):
    """The variables of a process with the launchers of a GPU, NVRTC and the emulated driver."""
    try:
        cuda_kernels.open_library()
    except cuda_kernels.Missing as missing:
        pytest.skip(f"needs NVRTC: {missing}")
    path, driver = build("xla:_bert_tf_launched_gpu.so", "kernels:emulated_driver/libcuda.so.1")
    return {
        "BERT_TF_EMULATED_GPU": str(path),
        "LD_LIBRARY_PATH": f"{driver.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}",
        "BERT_TF_CACHE_DIR": str(tmp_path_factory.mktemp("kernels")),
    }


def run_tests(environment, tests):
    """Runs tests in a process that sees GPUs; returns how many have passed."""
    chosen = " and ".join(f"not ({left_out})" for left_out in LEFT_OUT)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.ops.gpu_emulation", "-k", chosen, tests],
        cwd=REPOSITORY,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    passed = int(re.search(r"(\d+) passed", result.stdout)[1])
    print(f"{tests}: {passed} passed")
    return passed


@pytest.mark.parametrize(
    "tests, least",
    [
        ("tests/ops/emulated_gpu_cases.py", 5),
        ("tests/conformance/test_ops.py", 380),
        ("tests/ops/test_adam_weight_decay.py", 20),
        ("tests/ops/test_fused_bias_gelu.py", 6),
        ("tests/ops/test_fused_gate.py", 7),
        ("tests/ops/test_fused_residual_layer_norm.py", 13),
        ("tests/ops/test_varlen_attention.py", 20),
        ("tests/ops/test_xla.py", 20),
    ],
)
def test_it_is_as_on_the_cpu(emulated_gpu, tests, least):
    assert run_tests(emulated_gpu, tests) >= least


@pytest.mark.parametrize(
    "tests, least",
    [
        ("tests/ops/test_fused_bias_gelu.py", 6),
        ("tests/ops/test_fused_gate.py", 7),
        ("tests/ops/test_fused_residual_layer_norm.py", 13),
        ("tests/ops/test_varlen_attention.py", 20),
    ],
)
def test_every_kernel_is_found_and_launched(emulated_driver, tests, least):
    """NVRTC's code has each kernel's name; grid, shared memory and arguments are the right ones."""
    assert run_tests(emulated_driver, tests) >= least


WITHOUT_A_KERNEL = """
import numpy as np
import tensorflow as tf
from bert_tf import ops
from bert_tf.ops import loading
from tests.ops import gpu_emulation

if {no_nvrtc}:
    loading._open_nvrtc = lambda: None
gpu_emulation.see_gpus()
x, bias = tf.random.normal([9, 64]), tf.random.normal([64])
y, expected = ops.fused_bias_gelu(x, bias), ops.fused_bias_gelu_reference(x, bias)
np.testing.assert_array_equal(y, expected)
with ops.backend("native"):
    try:
        ops.fused_bias_gelu(x, bias)
    except tf.errors.InternalError as error:
        assert "BERT_TF_OPS=reference" in error.message
    else:
        raise AssertionError("a kernel has run")
print(ops.describe())
"""


@pytest.mark.parametrize(
    "settings, reason",
    [
        (
            {"EMULATED_CAPABILITY": "75"},
            "compute capability 7.5, but the kernels need at least 8.0",
        ),
        ({"EMULATED_DRIVER": "11040"}, "the driver supports CUDA 11, but"),
        ({"LD_LIBRARY_PATH": ""}, "libcuda.so.1 was not found: install NVIDIA's driver"),
        ({"LD_LIBRARY_PATH": "driver"}, "libnvrtc.so.12 was not found: pip install 'bert_tf[gpu]'"),
    ],
)
def test_a_gpu_without_what_the_kernels_need_gets_the_same_numbers(
    emulated_driver, settings, reason
):
    environment = {**os.environ, **emulated_driver, **settings}
    no_nvrtc = settings.get("LD_LIBRARY_PATH") == "driver"
    if no_nvrtc:
        environment["LD_LIBRARY_PATH"] = emulated_driver["LD_LIBRARY_PATH"].split(":")[0]
    environment.pop("BERT_TF_OPS", None)
    program = WITHOUT_A_KERNEL.format(no_nvrtc=no_nvrtc)
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    described = result.stdout.splitlines()
    assert "a GPU is visible, and" in described[0] and reason in described[0]
    assert "fused_bias_gelu: reference (see above)" in described
