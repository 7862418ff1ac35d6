"""The objects with GPU kernels and lowerings load together with the ops and register all of them.

XLA compiles them into a GPU program, which is not run here.

That the kernels compute what they should is for benchmarks/cuda_kernels, on a GPU, and for
//custom_ops/kernels:cuda_*_test and test_gpu_emulation.py, without one.
"""

import ctypes
import re
import shutil
import subprocess

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

import configure
from bert_tf import ops
from bert_tf.ops import loading, native

TYPES = ("bfloat16", "float16", "float32")
OPS = ("FusedBiasGelu", "FusedGate", "FusedResidualLayerNorm", "VarlenAttention")
LIBRARY = loading._GPU_LIBRARY_PATH
KERNELS = loading._DIRECTORY / "_bert_tf_kernels.so"


@pytest.fixture(scope="module")
def library():
    if native.library() is None:  # it registers the ops
        pytest.skip("needs the native ops")
    assert loading._load_addition(LIBRARY) == ""
    return LIBRARY


def gpu_kernels(op):
    """The types of every GPU kernel of an op, by the names of the attributes."""
    found = []
    for kernel in kernels.get_registered_kernels_for_op(f"BertTf>{op}").kernel:
        if kernel.device_type == "GPU":
            # Seeds and row splits stay on the GPU; only handles of variables do not.
            assert not {*kernel.host_memory_arg} - {"variables", "means", "squares"}
            found.append(
                {
                    constraint.name: tf.as_dtype(constraint.allowed_values.list.type[0]).name
                    for constraint in kernel.constraint
                }
            )
    return found


@pytest.mark.parametrize("op", [op + suffix for op in OPS for suffix in ("", "Grad")])
def test_every_type_has_a_kernel_and_a_gradient(library, op):
    # There is one kernel per dtype, which takes row splits of both types.
    expected = [{"T": dtype} for dtype in TYPES]
    assert sorted(map(repr, gpu_kernels(op))) == sorted(map(repr, expected))


def test_the_optimizer_has_one_kernel_for_all_types(library):
    for op in ("AdamWeightDecay", "GlobalNorm"):
        assert gpu_kernels(op) == [{}]


def test_ops_of_the_cpu_alone_have_none(library):
    for op in ("FusedDense", "PackDense"):
        assert gpu_kernels(op) == []


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf, of the binutils")
@pytest.mark.parametrize("path", [LIBRARY, loading._GPU_XLA_LIBRARY_PATH, KERNELS])
def test_no_library_of_cuda_is_needed_to_load_it(library, path):
    if not path.is_file():
        pytest.skip("needs the native ops: make ops ALL=1")
    command = ["readelf", "--dynamic", path]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", text)
    assert needed and not any(re.match("libcuda|libnvrtc", name) for name in needed)


@pytest.fixture(scope="module")
def xla_library(library):
    if not configure.has_xla_headers():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    path = loading._GPU_XLA_LIBRARY_PATH
    if not path.is_file():
        pytest.skip("needs the native ops: make ops ALL=1")
    assert loading._load_addition(path) == ""
    return path


def gpu_program(function, *arguments):
    """The HLO of what XLA would compile for a GPU; tracing needs none."""
    compiled = tf.function(function, jit_compile=True)
    with ops.backend("native"):
        generate = compiled.experimental_get_compiler_ir(*arguments)
    return generate(stage="hlo", platform_name="GPU")


def calls(program):
    """Every call of a foreign function: its name and the types of its results."""
    pattern = r'= \((.*?)\) custom-call\(.*custom_call_target="BertTf>(\w+)"'
    return [
        (name, re.sub(r"\{[\d,]*\}|/\*.*?\*/", "", results))
        for results, name in re.findall(pattern, program)
    ]


def test_xla_takes_every_op_and_gradient_into_a_gpu_program(xla_library):
    def run(x, bias, qkv, row_splits):
        with tf.GradientTape() as tape:
            tape.watch([x, bias, qkv])
            y = ops.fused_bias_gelu(x, bias)
            y = ops.fused_residual_layer_norm(y, x, bias, bias, bias, dropout_rate=0.1, seed=3)
            z = ops.varlen_attention(qkv, row_splits, dropout_rate=0.1, seed=4)
            loss = tf.reduce_sum(ops.fused_gate(y, "silu")) + tf.reduce_sum(z)
        return tape.gradient(loss, [x, bias, qkv])

    x, bias = tf.ones([100, 768]), tf.ones([768])
    qkv, row_splits = tf.ones([100, 3, 12, 64]), tf.constant([0, 30, 100], tf.int64)
    program = gpu_program(run, x, bias, qkv, row_splits)

    def scratch(launcher, *sizes):  # the last result of a gradient
        function = getattr(ctypes.CDLL(str(KERNELS)), f"BertTfCuda{launcher}GradScratch")
        function.restype = ctypes.c_int64
        return f"f32[{function(*map(ctypes.c_int64, sizes))}]"

    rows, vector = "f32[100,768]", "f32[768]"
    assert sorted(calls(program)) == [
        ("FusedBiasGelu", rows),
        ("FusedBiasGeluGrad", f"{rows}, {vector}, {scratch('BiasGelu', 100, 768)}"),
        ("FusedGate", "f32[100,384]"),
        ("FusedGateGrad", rows),
        ("FusedResidualLayerNorm", f"{rows}, f32[100], f32[100]"),
        (
            "FusedResidualLayerNormGrad",
            f"{rows}, {rows}, {vector}, {vector}, {vector}, "
            f"{scratch('ResidualLayerNorm', 100, 768)}",
        ),
        ("VarlenAttention", "f32[100,12,64], f32[100,12]"),
        ("VarlenAttentionGrad", f"f32[100,3,12,64], {scratch('VarlenAttention', 100, 12, 2, 0)}"),
    ]
    assert program.count("api_version=API_VERSION_TYPED_FFI") == 8
