"""Attention by cuDNN, as far as a machine without a GPU shows it. None of it ran on a GPU.

- Which calls cuDNN computes.
- How the row splits become what cuDNN reads: the kernel runs in the emulation.
- The object needs nothing but libtensorflow_framework.so.2, and says why there is no cuDNN.
- cuDNN makes plans for four GPUs. This needs a Python with its compiler, BERT_TF_CUDNN_PYTHON:

      pip install nvidia-cudnn-jit-cu12==9.27.* nvidia-cuda-nvrtc-cu12
"""

import ctypes
import itertools
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import configure
from bert_tf import BertBackbone, ops
from bert_tf.ops import native
from tests.conftest import REPOSITORY

FLOAT32, BFLOAT16, FLOAT16 = range(3)  # BertTfCudaType
SOURCES = REPOSITORY / "custom_ops" / "kernels" / "attention"
DEVICES = json.loads((Path(__file__).parent / "cudnn_devices.json").read_text())
COMPILE = ["g++", "-std=c++17", "-O0", "-fPIC", f"-I{REPOSITORY}"]
EMULATED = ["-DBERT_TF_EMULATED_GPU", "-Wno-unknown-pragmas", "-x", "c++"]
KERNEL = [*EMULATED, str(SOURCES / "cudnn_sequences.cu.cc")]
# C functions for ctypes. `sizes` are rows, sequences, heads, head size, window, global tokens and
# the largest length.
CALLS = r"""
#include "custom_ops/kernels/attention/cudnn_attention.h"
#include "custom_ops/kernels/attention/cudnn_sequences.h"
using namespace bert_tf;
static CudaAttentionArgs Args(const int64_t* sizes, int bias, int rotation) {
  static const float number = 0;
  CudaAttentionArgs args;
  args.rows = sizes[0];
  args.num_sequences = sizes[1];
  args.num_heads = sizes[2];
  args.head_size = sizes[3];
  args.window_size = sizes[4];
  args.num_global_tokens = sizes[5];
  args.max_length = sizes[6];
  args.distance_bias = bias ? &number : nullptr;
  args.rotation = rotation ? &number : nullptr;
  return args;
}
extern "C" {
const char* WhyNot(int type, const int64_t* sizes, int bias, int rotation) {
  return WhyNotCudnn(type, Args(sizes, bias, rotation));
}
int64_t Rounded(int64_t size) { return RoundedSize(size); }
int64_t Window(const int64_t* sizes) { return CaseOf(1, Args(sizes, 0, 0), false).window; }
int64_t Longest(const int64_t* sizes) { return CaseOf(1, Args(sizes, 0, 0), false).longest; }
int Sequences(const void* splits, int are_int64, const int64_t* sizes, int64_t sequences,
              int64_t* firsts, int64_t* offset, int32_t* lengths) {
  CudaAttentionArgs args = Args(sizes, 0, 0);
  args.row_splits = splits;
  args.row_splits_are_int64 = are_int64 != 0;
  const int64_t n = sequences + 1;
  return BertTfCudaCudnnSequences(args, sequences, sizes[6],
                                  {firsts, firsts + n, firsts + 2 * n, offset, lengths}, nullptr);
}
}
"""
# Prints the result of attention by cuDNN on a machine without it.
ATTEND = r"""
#include <cstdio>
#include "custom_ops/kernels/attention/cudnn_attention.h"
int main() {
  bert_tf::CudaAttentionArgs args;
  args.rows = args.num_sequences = args.num_heads = 1;
  args.head_size = 64;
  for (const int type : {kBertTfFloat32, kBertTfBFloat16}) {
    std::string message;
    const int result = BertTfCudaCudnnAttention(
        type, args, bert_tf::CudnnTensors(args), {nullptr, false, nullptr}, &message);
    std::printf("%d %s\n", result, message.c_str());
  }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cudnn")
    (folder / "calls.cc").write_text(CALLS)
    command = [*COMPILE, "-shared", folder / "calls.cc", *KERNEL, "-o", folder / "calls.so"]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(folder / "calls.so"))
    loaded.WhyNot.restype = ctypes.c_char_p
    for function in (loaded.Rounded, loaded.Window, loaded.Longest):
        function.restype = ctypes.c_int64
    return loaded


def sizes_of(rows=100, sequences=3, heads=12, head_size=64, window=-1, num_global=0, length=0):
    return (ctypes.c_int64 * 7)(rows, sequences, heads, head_size, window, num_global, length)


@pytest.mark.parametrize(
    "case",
    [
        {},
        {"type": FLOAT16},
        {"head_size": 8},
        {"head_size": 128},
        {"window": 5},
        {"heads": 1, "rows": 1, "sequences": 1},
    ],
)
def test_cudnn_computes(library, case):
    case = {"type": BFLOAT16} | case
    dtype = case.pop("type")
    assert library.WhyNot(dtype, sizes_of(**case), 0, 0) is None


@pytest.mark.parametrize(
    "dtype, case, bias, rotation, reason",
    [
        (FLOAT32, {}, 0, 0, "float32"),
        (BFLOAT16, {"rows": 0}, 0, 0, "no rows"),
        (BFLOAT16, {"sequences": 0}, 0, 0, "no rows"),
        (BFLOAT16, {"rows": 2**30 + 1}, 0, 0, "too many rows"),
        (FLOAT16, {"head_size": 60}, 0, 0, "multiple of 8"),
        (FLOAT16, {"head_size": 136}, 0, 0, "above 128"),
        (BFLOAT16, {}, 1, 0, "distance bias"),
        (BFLOAT16, {}, 0, 1, "rotation"),
        (BFLOAT16, {"num_global": 1}, 0, 0, "global tokens"),
    ],
)
def test_our_kernels_compute(library, dtype, case, bias, rotation, reason):
    assert reason in library.WhyNot(dtype, sizes_of(**case), bias, rotation).decode()


def test_a_window_of_all_rows_is_none(library):
    assert [library.Window(sizes_of(window=w)) for w in (-1, 0, 99, 100)] == [-1, 0, 99, -1]


def test_no_sequence_has_more_rows_than_the_batch(library):
    lengths = [library.Longest(sizes_of(length=length)) for length in (0, 1, 33, 99, 101)]
    assert lengths == [104, 1, 36, 104, 104]
    assert library.Window(sizes_of(length=16, window=16)) == -1


def test_few_sizes_have_plans(library):
    rounded = [library.Rounded(ctypes.c_int64(n)) for n in range(1, 4097)]
    assert rounded[:17] == [*range(1, 17), 18]
    assert all(n <= m <= max(n, n * 9 / 8) for n, m in enumerate(rounded, 1))
    assert len({m for m in rounded if m > 2048}) == 8
    assert library.Rounded(ctypes.c_int64(2**30)) == 2**30


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "splits, sequences, longest",
    [
        ([0, 3, 3, 10], 3, 7),  # with an empty sequence
        ([0, 3, 3, 10], 8, 8),  # and with further ones of the plan
        ([0, *range(1, 300)], 320, 2),  # more than a block of threads
        ([0, 7, 2, 10], 4, 10),  # invalid: they decrease
        ([-5, 4, 99, 10], 4, 10),  # invalid: they leave the rows
        ([0, 3, 10], 2, 5),  # invalid: the second is too long
        ([0, 4], 1, 4),
    ],
)
def test_sequences_are_those_of_the_row_splits(library, dtype, splits, sequences, longest):
    rows, heads, head_size = splits[-1], 3, 16
    given = np.array(splits, dtype)
    firsts = np.full([3, sequences + 1], -1, np.int64)
    offset, lengths = np.array([7], np.int64), np.full(sequences, -1, np.int32)
    status = library.Sequences(
        ctypes.c_void_p(given.ctypes.data),
        ctypes.c_int(dtype is np.int64),
        sizes_of(rows, len(splits) - 1, heads, head_size, length=longest),
        ctypes.c_int64(sequences),
        *[ctypes.c_void_p(array.ctypes.data) for array in (firsts, offset, lengths)],
    )
    assert status == 0
    starts = np.clip([*splits[:-1], *[rows] * (sequences + 2 - len(splits))], 0, rows)
    width = heads * head_size
    np.testing.assert_array_equal(firsts, np.outer([3 * width, width, heads], starts))
    np.testing.assert_array_equal(lengths, np.clip(np.diff(starts), 0, longest))
    assert np.all(starts[:-1] + lengths <= rows)
    assert offset == [0]


def test_a_largest_length_below_one_is_refused():
    with pytest.raises(ValueError, match="`max_length` must be None or at least 1"):
        ops.varlen_attention(tf.ones([3, 3, 1, 8]), [0, 3], max_length=0)


@pytest.mark.parametrize("length, expected", [(9, 9), (None, 0)])
def test_the_encoder_says_how_long_a_sequence_can_be(tiny_config, length, expected):
    if native.library() is None:
        pytest.skip("needs the native ops")
    backbone = BertBackbone(tiny_config)

    @tf.function(input_signature=[tf.TensorSpec([None, length], tf.int32)])
    def gradient(token_ids):
        with tf.GradientTape() as tape:
            output = backbone({"token_ids": token_ids}, training=True)["sequence_output"]
        return tape.gradient(output, backbone.trainable_variables)

    with ops.backend("native"):
        graph = gradient.get_concrete_function().graph
    found = {
        op.type: op.get_attr("max_length")
        for op in graph.get_operations()
        if op.type.startswith("BertTf>VarlenAttention")
    }
    assert found == {"BertTf>VarlenAttention": expected, "BertTf>VarlenAttentionGrad": expected}


def header_folders(cudnn: Path, folder: Path) -> list[str]:
    """The flags for the headers; those of cuDNN get the folder that cudnn-frontend names."""
    _, tensorflow = configure.find_tensorflow()
    include = tensorflow / "include"
    frontend = include / "external" / "cudnn_frontend_archive" / "include"
    if not (frontend / "cudnn_frontend.h").is_file():
        pytest.skip("needs a TensorFlow with the headers of cudnn-frontend")
    (folder / "third_party" / "gpus").mkdir(parents=True)
    (folder / "third_party" / "gpus" / "cudnn").symlink_to(cudnn)
    cuda = include / "third_party" / "gpus" / "cuda"
    folders = [folder, cudnn, frontend, cuda / "include", cuda / "libcudacxx" / "include"]
    return [f"-isystem{path}" for path in folders]


@pytest.mark.full
def test_it_links_with_tensorflow_and_says_that_there_is_no_cudnn(tmp_path):
    _, tensorflow = configure.find_tensorflow()
    (tmp_path / "attend.cc").write_text(ATTEND)
    headers = header_folders(
        tensorflow / "include" / "third_party" / "gpus" / "cudnn" / "include", tmp_path / "headers"
    )
    sources = [tmp_path / "attend.cc", SOURCES / "cudnn_attention.cc"]
    framework = ["-x", "none", tensorflow / "libtensorflow_framework.so.2"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [*COMPILE, *warnings, *headers, *sources, *KERNEL, *framework]
    command += ["-Wl,--no-undefined", f"-Wl,-rpath,{tensorflow}", "-o", tmp_path / "attend"]
    subprocess.run(command, check=True)
    for choice, answers in (
        ("0", ["2 BERT_TF_CUDNN=1 switches it on"] * 2),
        ("1", ["2 the type is float32", "3 cuDNN must be at least version 92600. Received: none."]),
    ):
        run = subprocess.run(
            [tmp_path / "attend"],
            env=os.environ | {"BERT_TF_CUDNN": choice},
            capture_output=True,
            text=True,
            check=True,
        )
        for line, answer in zip(run.stdout.splitlines(), answers, strict=True):
            assert line.startswith(answer)


# What the stub of the driver answers: that it has loaded a kernel. Otherwise there is no GPU.
LOADS = re.compile(r"cu(Library|Module|Kernel)(Load\w*|Get(Kernel|Function|Module)\w*)")
IS_LOADED = re.compile(r"cu(Library|Module|Kernel)\w+")
NO_GPU = 100  # CUDA_ERROR_NO_DEVICE


def stub_of_the_driver(names: set[str]) -> str:
    """Returns C functions with these names."""
    functions = ["static int object;"]
    for name in sorted(names):
        if LOADS.fullmatch(name):
            functions.append(f"int {name}(void** result) {{ *result = &object; return 0; }}")
        else:
            status = 0 if IS_LOADED.fullmatch(name) else NO_GPU
            functions.append(f"int {name}() {{ return {status}; }}")
    return "\n".join(functions) + "\n"


@pytest.fixture(scope="module")
def make_plans(tmp_path_factory):
    """Returns a function that returns what cudnn_plans.cc prints for cases on a device."""
    python = os.environ.get("BERT_TF_CUDNN_PYTHON")
    if not python:
        pytest.skip("needs BERT_TF_CUDNN_PYTHON, a Python with nvidia-cudnn-jit-cu12")
    find = "import nvidia; print(*nvidia.__path__)"
    found = subprocess.run([python, "-c", find], capture_output=True, text=True, check=True)
    nvidia = Path(found.stdout.split()[0])
    cudnn = nvidia / "cudnn_jit"
    folder = tmp_path_factory.mktemp("plans")
    headers = header_folders(cudnn / "include", folder / "headers")
    source = Path(__file__).parent / "cudnn_plans.cc"
    subprocess.run([*COMPILE, *headers, "-c", source, "-o", folder / "plans.o"], check=True)

    libraries = sorted((cudnn / "lib").glob("libcudnn*.so.9"))
    undefined = ["nm", "-u", folder / "plans.o"]
    needed = subprocess.run(undefined, capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"U (cu(?:da)?[A-Z]\w*)$", needed, re.MULTILINE))
    for library in libraries:  # which look up the functions of the driver by their names
        strings = re.findall(rb"\0(cu[A-Z][A-Za-z0-9]*(?:_v\d+)?)(?=\0)", library.read_bytes())
        names |= {name.decode() for name in strings}
    (folder / "cuda.c").write_text(stub_of_the_driver(names))
    stub = folder / "libcuda.so.1"
    shared = ["gcc", "-w", "-shared", "-fPIC", f"-Wl,-soname,{stub.name}"]
    subprocess.run([*shared, folder / "cuda.c", "-o", stub], check=True)
    objects = [folder / "plans.o", stub, *libraries]
    subprocess.run(["g++", *objects, "-o", folder / "plans"], check=True)
    folders = [folder, cudnn / "lib", nvidia / "cuda_nvrtc" / "lib"]
    environment = dict(os.environ) | {"LD_LIBRARY_PATH": ":".join(map(str, folders))}

    def make(device, cases):
        (folder / "device.json").write_text(json.dumps(DEVICES[device], separators=(",", ":")))
        run = subprocess.run(
            [folder / "plans", folder / "device.json"],
            input="".join(" ".join(str(+value) for value in case) + "\n" for case in cases),
            env=environment,
            capture_output=True,
            text=True,
        )
        assert run.returncode == 0, run.stderr
        answers = re.findall(r"^(?:refused: .*|supported|\d+ \d+ \w+.*)$", run.stdout, re.MULTILINE)
        assert len(answers) == len(cases), run.stdout
        return answers

    return make


ROWS, SEQUENCES, LONGEST, HEADS = 16384, 32, 512, 12
MASKS = [(-1, False), (-1, True), (128, False), (128, True)]  # window, causal
PASSES = [(False, False), (False, True), (True, True)]  # deterministic, gradient


def case_of(dtype, head_size, mask, rate, deterministic, gradient, compile, longest=LONGEST):
    """Returns the fields that cudnn_plans.cc reads."""
    sizes = (SEQUENCES, ROWS, longest, HEADS, head_size)
    return (dtype, *sizes, *mask, deterministic, rate, gradient, compile)


# For a deterministic gradient of packed rows, cuDNN and cudnn-frontend 1.13 have only sm_90.
HAVE_DETERMINISTIC = ("h100",)


def is_expected(device, case, answer):
    *_, deterministic, _, _, _ = case
    return answer.startswith("refused") == (deterministic and device not in HAVE_DETERMINISTIC)


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_cudnn_supports_what_it_shall_compute(make_plans, device):
    matrix = itertools.product((BFLOAT16, FLOAT16), (8, 32, 64, 96, 128), MASKS, (0.0, 0.1), PASSES)
    cases = [
        case_of(dtype, head_size, mask, rate, *which, False)
        for dtype, head_size, mask, rate, which in matrix
    ]
    answers = make_plans(device, cases)
    print(device, answers.count("supported"), "of", len(cases), "cases are supported")
    unexpected = [each for each in zip(cases, answers) if not is_expected(device, *each)]
    assert unexpected == []


@pytest.mark.full
def test_a_gradient_that_needs_too_much_memory_is_refused(make_plans):
    # The workspace of a deterministic gradient grows with the square of the largest length.
    cases = [case_of(BFLOAT16, 64, MASKS[0], 0.1, True, True, False, n) for n in (LONGEST, ROWS)]
    supported, refused = make_plans("h100", cases)
    assert supported == "supported" and refused.startswith("refused")


@pytest.mark.full
@pytest.mark.parametrize("device", DEVICES)
def test_cudnn_makes_the_plans(make_plans, device):
    some = [(BFLOAT16, size, MASKS[0], 0.1) for size in (32, 64, 128)]
    some += [(BFLOAT16, 64, mask, 0.1) for mask in MASKS[1:]] + [(FLOAT16, 64, MASKS[0], 0.0)]
    cases = [case_of(*case, *which, True) for case in some for which in PASSES]
    answers = make_plans(device, cases)
    unexpected = [each for each in zip(cases, answers) if not is_expected(device, *each)]
    assert unexpected == []
    workspaces = [int(answer.split()[1]) for answer in answers if not answer.startswith("refused")]
    print(device, len(workspaces), "plans, the largest workspace has", max(workspaces), "bytes")
    assert max(workspaces) <= 2**30
