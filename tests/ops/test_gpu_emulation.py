"""The tests of ops and of models under XLA through the GPU's OpKernels, lowerings and handlers.

gpu_emulation.py lets the CUDA kernels run on the CPU.

In processes of their own: this one has the CPU's kernels.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import configure
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
    "kinds",  # vectors of distances, likewise
    "quantized_attention",  # likewise
    "varlen_cross_attention",  # likewise
    "rms_norm",  # likewise
    "compute_bfloat16",  # compute_dtype is ignored
    "test_products_in_bfloat16",  # likewise
    "test_a_long_sequence_needs_memory_linear_in_its_length",  # the CPU's memory; minutes
)


@pytest.fixture(scope="module")
def emulated_gpu():
    if native.library() is None:
        pytest.skip("needs the native ops")
    if not configure.has_xla_headers():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    bazel = configure.find_bazel()
    target = "//custom_ops/xla:_bert_tf_emulated_gpu.so"
    subprocess.run([bazel, "build", target], cwd=REPOSITORY, check=True)
    answer = subprocess.run(
        [bazel, "info", "bazel-bin"], cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True
    )
    return Path(answer.stdout.strip()) / "custom_ops/xla/_bert_tf_emulated_gpu.so"


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
    chosen = " and ".join(f"not ({left_out})" for left_out in LEFT_OUT)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.ops.gpu_emulation", "-k", chosen, tests],
        cwd=REPOSITORY,
        env={**os.environ, "BERT_TF_EMULATED_GPU": str(emulated_gpu)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    passed = int(re.search(r"(\d+) passed", result.stdout)[1])
    print(f"{tests}: {passed} passed")
    assert passed >= least
