"""Choosing the backend: the environment, the scope, and objects that are missing or do not fit."""

import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.ops import loading, native

MINOR_VERSION = ".".join(tf.__version__.split(".")[:2])


@pytest.fixture
def copy_of_native(tmp_path, monkeypatch):
    """Loads loading.py in a new folder, with a library for this or another TensorFlow."""
    monkeypatch.delenv(native.BACKEND_VARIABLE, raising=False)

    def make(library=None, version=MINOR_VERSION):
        source = tmp_path / "loading.py"
        shutil.copy(loading.__file__, source)
        if library is not None:
            (tmp_path / f"tensorflow_{version}").mkdir()
            (tmp_path / f"tensorflow_{version}" / "_bert_tf_ops.so").write_bytes(library)
        spec = importlib.util.spec_from_file_location("copy_of_loading", source)
        module = importlib.util.module_from_spec(spec)
        # dataclasses looks its module up by name.
        monkeypatch.setitem(sys.modules, "copy_of_loading", module)
        spec.loader.exec_module(module)
        monkeypatch.setattr(native, "loading", module)
        return native

    return make


def test_without_a_library_the_reference_is_used_and_said_once(copy_of_native, caplog):
    module = copy_of_native()
    with caplog.at_level(logging.INFO, logger="bert_tf"):
        assert module.library() is None
        assert not module.use_native()
        assert module.active_backend() == "reference"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "not built" in record.getMessage() and "make ops" in record.getMessage()


def test_native_by_name_without_a_library_says_what_to_do(copy_of_native, monkeypatch):
    module = copy_of_native()
    monkeypatch.setenv("BERT_TF_OPS", "native")
    with pytest.raises(RuntimeError, match="BERT_TF_OPS=native.*not built.*make ops"):
        module.use_native()
    monkeypatch.delenv("BERT_TF_OPS")
    with module.backend("native"), pytest.raises(RuntimeError, match="make ops"):
        module.use_native()


def test_another_tensorflow_is_warned_of_and_never_loaded(copy_of_native, caplog):
    # Loading these bytes would fail with another message.
    module = copy_of_native(b"not a shared object", version="2.9")
    with caplog.at_level(logging.INFO, logger="bert_tf"):
        assert not module.use_native()
        assert not module.use_native()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    message = record.getMessage()
    assert f"built for TensorFlow 2.9, but this is TensorFlow {tf.__version__}" in message
    assert "pip install 'tensorflow==2.9.*'" in message and "make ops" in message


def test_a_damaged_library_falls_back(copy_of_native, caplog, monkeypatch):
    module = copy_of_native(b"\x7fELF and no more")
    assert module.active_backend() == "reference"
    assert "could not be loaded" in caplog.text
    monkeypatch.setenv("BERT_TF_OPS", "native")
    with pytest.raises(RuntimeError, match="could not be loaded"):
        module.use_native()


def test_a_gpu_that_the_library_does_not_serve_takes_the_reference(copy_of_native, monkeypatch):
    module = copy_of_native(b"")
    loaded = object()
    monkeypatch.setattr(tf, "load_op_library", lambda path: loaded)
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: {})
    assert not module.use_native()
    monkeypatch.setenv("BERT_TF_OPS", "native")
    assert module.use_native() and module.library() is loaded
    assert not module.use_native(runs_on_gpu=False)  # its variables live on the GPU
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    assert module.use_native(runs_on_gpu=False)


def test_without_lowerings_an_op_takes_the_reference_under_xla(copy_of_native, monkeypatch):
    module = copy_of_native(b"")
    monkeypatch.setattr(tf, "load_op_library", lambda path: object())
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])

    def traced_backend(**options):
        seen = []

        @tf.function(autograph=False, **options)
        def inner(x):
            seen.append(module.active_backend())
            return x

        tf.function(inner, autograph=False, **options)(tf.ones([]))
        return seen

    assert traced_backend() == ["native"]
    assert traced_backend(jit_compile=True) == ["reference"]
    assert "_bert_tf_xla.so is not built; `make ops ALL=1`" in module.loading.load().reason
    monkeypatch.setenv("BERT_TF_OPS", "native")
    assert traced_backend() == ["native"]
    with pytest.raises(RuntimeError, match="XLA lowerings must be available.*`make ops ALL=1`"):
        traced_backend(jit_compile=True)


def test_kernels_for_another_processor_are_refused(copy_of_native, monkeypatch, caplog):
    """custom_ops/ops/check_instruction_set.cc refuses them when they are loaded."""
    why = "The kernels are built only for the instruction set avx512. `make ops ALL=1`"

    def refuse(path):
        raise tf.errors.FailedPreconditionError(None, None, why)

    module = copy_of_native(b"")
    monkeypatch.setattr(tf, "load_op_library", refuse)
    assert module.active_backend() == "reference"
    assert why in caplog.text


@pytest.mark.parametrize(
    "present, capability, kernels, lowerings",
    [
        ((), (9, 0), False, False),
        (("gpu_ops",), (9, 0), True, False),
        (("gpu_xla",), (9, 0), False, False),
        (("gpu_ops", "gpu_xla"), (8, 0), True, True),
        (("gpu_ops", "gpu_xla"), (7, 5), False, False),  # too old
    ],
)
def test_what_a_gpu_gets(copy_of_native, monkeypatch, present, capability, kernels, lowerings):
    module = copy_of_native(b"")
    loaded = []
    for name in present:
        (module.loading._FOLDER / f"_bert_tf_{name}.so").write_bytes(b"")
    monkeypatch.setattr(tf, "load_op_library", lambda path: object())
    monkeypatch.setattr(tf, "load_library", lambda path: loaded.append(Path(path).stem))
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
    details = {"compute_capability": capability}
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: details)
    monkeypatch.setattr(module.loading, "_why_not_on_gpu", lambda library: "")
    assert module.has_gpu_kernels() is kernels
    assert module.compiles_under_xla() is lowerings
    expected = [] if not kernels else ["_bert_tf_gpu_ops"] + ["_bert_tf_gpu_xla"] * lowerings
    assert loaded == expected
    assert ("compute capability 7.5" in module.loading.load().reason) == (capability == (7, 5))


@pytest.fixture
def on_a_gpu(copy_of_native, monkeypatch):
    """Native ops where a GPU is visible, whose kernels run unless there is a reason."""

    def make(reason=""):
        module = copy_of_native(b"")
        for name in ("gpu_ops", "gpu_xla"):
            (module.loading._FOLDER / f"_bert_tf_{name}.so").write_bytes(b"")
        monkeypatch.setattr(tf, "load_op_library", lambda path: object())
        monkeypatch.setattr(tf, "load_library", lambda path: None)
        monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind])
        monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda device: {})
        monkeypatch.setattr(module.loading, "_why_not_on_gpu", lambda library: reason)
        return module

    return make


def test_auto_takes_the_gpu_kernels_that_were_measured_to_be_faster(on_a_gpu):
    module = on_a_gpu()

    def native_ops():
        return [op for op in module._OPS if module.used_library(module._OPS[op], op) is not None]

    assert native_ops() == ["fused_bias_gelu", "fused_residual_layer_norm", "varlen_attention"]
    assert module.active_backend() == "reference"  # not all of them
    with module.static_shapes():  # for XLA
        assert native_ops() == []
    with module.backend("native"):
        assert native_ops() == [op for op, has_kernel in module._OPS.items() if has_kernel]
    text = module.describe()
    assert "its kernels run" in text
    assert "varlen_attention: native (with it a training step on an H100 took 66.5 ms" in text
    assert "with XLA: reference (its GPU kernel was not measured there)" in text
    assert "fused_gate: reference (its GPU kernel was not measured there)" in text
    assert "fused_dense: reference (it has no GPU kernel)" in text
    with module.backend("native"):
        assert "fused_gate: native\n" in module.describe()


def test_auto_takes_the_reference_where_the_gpu_kernels_do_not_run(on_a_gpu, caplog):
    why = "libnvrtc.so.12 was not found: pip install 'bert_tf[gpu]' installs it"
    module = on_a_gpu(why)
    assert module.used_library(op="varlen_attention") is None
    assert not module.compiles_under_xla() and not module.has_gpu_kernels()
    (record,) = caplog.records
    assert record.levelno == logging.WARNING and why in record.getMessage()
    text = module.describe()
    assert text.count(why) == 1 and "varlen_attention: reference (see above)" in text


def test_a_kernel_is_tried_before_it_is_used(monkeypatch):
    if native.library() is None:
        pytest.skip("needs the native ops")
    monkeypatch.setattr(loading, "_FIRST_GPU", "CPU:0")
    library = native.library()
    assert loading._why_not_on_gpu(library) == ""

    class Wrong:
        @staticmethod
        def bert_tf_fused_bias_gelu(x, bias, approximate):
            return library.bert_tf_fused_bias_gelu(x, bias + 1, approximate=approximate)

    class Failing:
        @staticmethod
        def bert_tf_fused_bias_gelu(x, bias, approximate):
            raise tf.errors.InternalError(None, None, "no driver\nand more")

    assert "wrong numbers" in loading._why_not_on_gpu(Wrong)
    assert loading._why_not_on_gpu(Failing) == "no driver"


def test_on_a_cpu_all_ops_are_described_as_native():
    if native.library() is None or tf.config.get_visible_devices("GPU"):
        pytest.skip("needs the native ops")
    with native.backend("native"):
        first, *lines = native.describe().splitlines()
    assert "Requested: native" in first
    assert lines == [f"{op}: native" for op in native._OPS]


def test_unknown_names_are_refused(copy_of_native, monkeypatch):
    module = copy_of_native()
    with pytest.raises(ValueError, match="auto, native, reference.*Received: name='cuda'"):
        with module.backend("cuda"):
            pass
    monkeypatch.setenv("BERT_TF_OPS", "fast")
    with pytest.raises(ValueError, match="auto, native, reference.*BERT_TF_OPS='fast'"):
        module.use_native()
    with module.backend("reference"):  # The scope is asked first.
        assert not module.use_native()


def test_an_empty_variable_is_the_default(copy_of_native, monkeypatch):
    monkeypatch.setenv("BERT_TF_OPS", "")
    assert copy_of_native().active_backend() == "reference"


def test_reference_never_loads(copy_of_native, caplog):
    module = copy_of_native(b"not a shared object")
    with module.backend("reference"):
        assert not module.use_native()
    assert not caplog.records


def test_scopes_nest_end_with_errors_and_stay_in_their_thread(copy_of_native, monkeypatch):
    module = copy_of_native(b"")
    monkeypatch.setattr(tf, "load_op_library", lambda path: object())
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    seen = []
    with module.backend("reference"):
        with module.backend("auto"):
            assert module.active_backend() == "native"
        assert module.active_backend() == "reference"
        thread = threading.Thread(target=lambda: seen.append(module.active_backend()))
        thread.start()
        thread.join()
    assert seen == ["native"]
    with pytest.raises(KeyError):
        with module.backend("reference"):
            raise KeyError
    assert module.active_backend() == "native"


def test_many_threads_load_once(copy_of_native, monkeypatch):
    module = copy_of_native(b"")
    loads = []
    monkeypatch.setattr(tf, "load_op_library", lambda path: loads.append(path) or object())
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [])
    barrier = threading.Barrier(8)

    def load():
        barrier.wait()
        module.library()

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1


@pytest.mark.skipif(
    native.library() is None and os.environ.get(native.BACKEND_VARIABLE) != "native",
    reason="needs the native ops",
)
def test_the_built_library_holds_every_op():
    library = native.library()
    with_gradient = (
        "fused_bias_gelu", "fused_gate", "fused_residual_layer_norm", "varlen_attention",
        "varlen_cross_attention",
    )  # fmt: skip
    for op in with_gradient:
        assert hasattr(library, f"bert_tf_{op}") and hasattr(library, f"bert_tf_{op}_grad")
    without_gradient = (
        "adam_weight_decay", "bfloat16_dense", "bfloat16_feed_forward", "fused_dense",
        "global_norm", "pack_dense", "quantized_attention", "quantized_dense",
        "quantized_feed_forward",
    )  # fmt: skip
    for op in without_gradient:
        assert hasattr(library, f"bert_tf_{op}")
    info = json.loads(loading._BUILD_INFO_PATH.read_text(encoding="utf-8"))
    assert info["tensorflow_version"].rsplit(".", 1)[0] == MINOR_VERSION


@pytest.mark.skipif(native.library() is None, reason="needs the native ops")
@pytest.mark.skipif(shutil.which("nm") is None, reason="needs nm, of the binutils")
@pytest.mark.parametrize("path", [
    path for path in (loading._LIBRARY_PATH, loading._XLA_LIBRARY_PATH, loading._GPU_LIBRARY_PATH,
                      loading._GPU_XLA_LIBRARY_PATH, loading._DIRECTORY / "_bert_tf_kernels.so")
    if path.is_file()
], ids=lambda path: path.stem)  # fmt: skip
def test_an_object_exports_only_what_another_one_calls(path):
    lines = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--demangle", path],
        check=True, stdout=subprocess.PIPE, text=True,
    ).stdout.splitlines()  # fmt: skip
    symbols = [line.split(maxsplit=2)[1:] for line in lines]
    if path.stem != "_bert_tf_kernels":
        is_of_gpu_ops = path == loading._GPU_LIBRARY_PATH
        assert symbols == [["T", "BertTfCudaCudnnAttention"]] * is_of_gpu_ops
    # Not "u": one for the whole process, whatever object defines it (STB_GNU_UNIQUE). Nor the
    # copies for an instruction set.
    for kind, name in symbols:
        assert kind in "TW" and ("bert_tf::" in name or name.startswith("BertTfCuda")), name
        assert not any(f"bert_tf::{isa}::" in name for isa in ("portable", "avx2", "avx512")), name
