"""Compiles a serialized HLO program for a GPU that is not there; runs with jax[cuda12] alone.

    python compile_for_gpu.py TARGET SERIALIZED_HLO OPTIMIZED_TEXT NUM_REPLICAS

TARGET is XLA's text of a `GpuTargetConfigProto`. Each replica has a GPU of one machine. The foreign
functions of bert_tf are handlers that only answer what XLA asks of them while it compiles: their
version, and that a CUDA graph may contain them.
"""

import ctypes
import os
import re
import sys

_METADATA = 1  # XLA_FFI_Extension_Metadata
_COMMAND_BUFFER_COMPATIBLE = 1


# These are the beginnings of the structures of xla/ffi/api/c_api.h.
class Extension(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class Version(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("extension", ctypes.c_void_p),
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
    ]


class Metadata(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("version", Version), ("traits", ctypes.c_uint32)]


class MetadataExtension(ctypes.Structure):
    _fields_ = [("base", Extension), ("metadata", ctypes.POINTER(Metadata))]


class CallFrame(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("extension", ctypes.POINTER(Extension))]


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))
def handler(frame):
    extension = frame.contents.extension
    if extension and extension.contents.type == _METADATA:
        metadata = ctypes.cast(extension, ctypes.POINTER(MetadataExtension)).contents.metadata
        metadata.contents.version.major, metadata.contents.version.minor = 0, 3
        metadata.contents.traits = _COMMAND_BUFFER_COMPATIBLE
    return None


def read_program(program: bytes):
    """Returns a serialized HLO program as a module of StableHLO, in the current MLIR context."""
    from jax._src.lib.mlir import ir
    from jaxlib import _jax

    module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(program))
    text = module.operation.get_asm(print_generic_op_form=True)
    # StableHLO has no copy.
    return ir.Module.parse(text.replace('"mhlo.copy"', '"stablehlo.convert"'))


def main(target, source, result, num_replicas):
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    # Without a GPU, XLA cannot time the variants of a matrix multiplication.
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0"
    import jax
    import numpy as np
    from jax._src.interpreters import mlir
    from jax.experimental import topologies
    from jaxlib import _jax, xla_client

    replicas = int(num_replicas)
    with open(target) as file:
        devices = topologies.get_topology_desc(
            platform="cuda",
            topology_name="gpu",
            target_config=file.read(),
            topology=f"1x1x{replicas}",
        ).devices
    with open(source, "rb") as file:
        program = file.read()
    for name in set(re.findall(rb"BertTf>\w+", program)):
        capsule = jax.ffi.pycapsule(ctypes.cast(handler, ctypes.c_void_p).value)
        jax.ffi.register_ffi_target(name.decode(), capsule, platform="CUDA")
    options = xla_client.CompileOptions()
    options.num_replicas = replicas
    assignment = np.arange(replicas).reshape(replicas, 1)
    options.device_assignment = xla_client.DeviceAssignment.create(assignment)
    with mlir.make_ir_context():
        module = read_program(program)
    program = devices[0].client.compile(module, _jax.DeviceList(tuple(devices)), options)
    with open(result, "w") as file:
        file.write("\n".join(part.to_string() for part in program.hlo_modules()))


if __name__ == "__main__":
    main(*sys.argv[1:])
