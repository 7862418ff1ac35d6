"""The object with the GPU kernels loads beside the ops and registers them all. Nothing runs here.

`make ops CUDA_HOME=...` builds it, with or without a GPU. That the kernels compute what they should
is for tools/check_cuda_kernels.py, on a GPU, and for
//custom_ops/kernels:cuda_kernels_test, without one.
"""

import itertools
import json

import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels

from bert_tf.ops import native

TYPES = ("bfloat16", "float16", "float32")
OPS = ("FusedBiasGelu", "FusedResidualLayerNorm", "VarlenAttention")
LIBRARY = native._GPU_LIBRARY_PATH


@pytest.fixture(scope="module")
def library():
    if not LIBRARY.is_file():
        pytest.skip("needs the GPU kernels: make ops CUDA_HOME=...")
    if native.library() is None:  # it registers the ops
        pytest.skip("needs the native ops")
    missing = native._load_addition(LIBRARY, native._GPU_BUILD_INFO_PATH)
    if "was built for" in missing:
        pytest.skip(f"needs the GPU kernels: {missing}")
    assert missing == ""
    return LIBRARY


def gpu_kernels(op):
    """The types of every GPU kernel of an op, by the names of the attributes."""
    found = []
    for kernel in kernels.get_registered_kernels_for_op(f"BertTf>{op}").kernel:
        if kernel.device_type == "GPU":
            assert not kernel.host_memory_arg  # seeds and row splits stay on the GPU
            found.append(
                {
                    constraint.name: tf.as_dtype(constraint.allowed_values.list.type[0]).name
                    for constraint in kernel.constraint
                }
            )
    return found


@pytest.mark.parametrize("op", [op + suffix for op in OPS for suffix in ("", "Grad")])
def test_every_type_has_a_kernel_and_a_gradient(library, op):
    splits = ("int32", "int64") if op.startswith("Varlen") else (None,)
    expected = [
        {"T": dtype} if split is None else {"T": dtype, "Tsplits": split}
        for dtype, split in itertools.product(TYPES, splits)
    ]
    found = gpu_kernels(op)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_ops_of_the_cpu_alone_have_none(library):
    for op in ("FusedDense", "PackDense", "AdamWeightDecay"):
        assert gpu_kernels(op) == []


def test_the_cuda_runtime_is_inside(library):
    content = library.read_bytes()
    assert b"libcudart.so" not in content  # no toolkit is needed where it is used
    info = json.loads(native._GPU_BUILD_INFO_PATH.read_text(encoding="utf-8"))
    assert info["devices"] == ["GPU"] and info["nvcc"].split(".")[0] in ("12", "13")
    assert info["tensorflow_version"].split(".")[:2] == tf.__version__.split(".")[:2]
