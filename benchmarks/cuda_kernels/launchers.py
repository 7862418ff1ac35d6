"""Calls the launchers of cuda_launchers.h on PyTorch's tensors.

Glossary: `R` rows, `F` columns, `N` heads, `D` head size, `B` sequences.
"""

import ctypes
import dataclasses
import functools
import math

import torch

EPSILON = 1e-12  # of LayerNorm
# Attention's arguments without a distance bias and without a rotation.
NO_BIAS, NO_ROTATION = (None, 0), (None, 0, 0)
TAIL = 4096  # numbers of NaN after the end of a tensor
NO_LENGTH = 0  # of the longest sequence, which only cuDNN uses
ACTIVATIONS = {"gelu": 1, "gelu_new": 2, "silu": 3}  # DenseActivation
TYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # BertTfCudaType


@dataclasses.dataclass
class Kernels:
    """The kernels of a library, each as a method that returns its outputs by name.

    The methods that take `given` write the outputs of these names to these buffers.
    """

    library: ctypes.CDLL
    device: str = "cuda"  # or "cpu" for a library of emulated kernels

    def nan(self, *shape, dtype=torch.float32):
        """Returns a buffer of NaN with a `tail` of NaN.

        What a kernel does not write stays NaN. What it writes or uses after the end shows, too.
        """
        count = math.prod(shape)
        buffer = torch.full((count + TAIL,), float("nan"), dtype=dtype, device=self.device)
        return buffer[:count].view(shape)

    def outputs(self, given, dtype, **shapes):
        """Returns the `given` buffers and new ones for the other outputs; None for a shape None."""
        return {
            name: given[name] if name in given else shape and self.nan(*shape, dtype=dtype)
            for name, shape in shapes.items()
        }

    def scratch(self, name, *sizes):
        """Returns the scratch that the gradient of a kernel needs."""
        size = getattr(self.library, f"BertTfCuda{name}GradScratch")
        size.restype = ctypes.c_int64
        return self.nan(max(size(*map(ctypes.c_int64, sizes)), 1))

    def call(self, name, dtype, *arguments):
        """Calls the launcher `BertTfCuda{name}` on the current stream.

        `arguments` are all fields of the launcher's arguments, in their order.
        """
        stream = torch.cuda.current_stream().cuda_stream if self.device == "cuda" else None
        converted = [_converted(argument) for argument in arguments]
        structure = _structure(*map(type, converted))(*(field.value for field in converted))
        launcher = getattr(self.library, f"BertTfCuda{name}")
        status = launcher(TYPES[dtype], ctypes.byref(structure), ctypes.c_void_p(stream))
        if status != 0:
            raise RuntimeError(f"BertTfCuda{name} returned CUDA error {status}")

    def bias_gelu(self, x, bias, approximate, **given):
        outputs = self.outputs(given, x.dtype, y=x.shape)
        self.call("BiasGelu", x.dtype, x, bias, *x.shape, approximate, *outputs.values())
        return outputs

    def bias_gelu_grad(self, dy, x, bias, approximate, **given):
        outputs = self.outputs(given, x.dtype, dx=x.shape, dbias=bias.shape)
        inputs = (dy, x, bias, *x.shape, approximate)
        scratch = self.scratch("BiasGelu", *x.shape)
        self.call("BiasGeluGrad", x.dtype, *inputs, *outputs.values(), scratch)
        return outputs

    def gate(self, x, activation, dy=None, **given):
        rows, columns = x.shape[0], x.shape[1] // 2
        shapes = {"y": (rows, columns)} if dy is None else {"dx": x.shape}
        outputs = self.outputs(given, x.dtype, **shapes)
        inputs = (dy, x, rows, columns, ACTIVATIONS[activation])
        self.call("Gate", x.dtype, *inputs, *outputs.values())
        return outputs

    def layer_norm(self, x, residual, bias, gamma, beta, rate, seed, **given):
        outputs = self.outputs(given, x.dtype, y=x.shape)
        outputs |= self.outputs(given, torch.float32, mean=x.shape[:1], rstd=x.shape[:1])
        inputs = (x, residual, bias, gamma, beta, *x.shape, EPSILON, rate, seed)
        self.call("ResidualLayerNorm", x.dtype, *inputs, *outputs.values())
        return outputs

    def layer_norm_grad(
        self, dy, x, residual, bias, gamma, mean, rstd, rate, seed, other_dy=None, **given
    ):
        outputs = self.outputs(
            given,
            x.dtype,
            dx=x.shape,
            dresidual=x.shape if rate > 0 and residual is not None else None,
            dbias=None if bias is None else gamma.shape,
            dgamma=gamma.shape,
            dbeta=gamma.shape,
        )
        inputs = (dy, x, residual, bias, gamma, mean, rstd, *x.shape, rate, seed)
        scratch = self.scratch("ResidualLayerNorm", *x.shape)
        outputs_and_rest = (*outputs.values(), scratch, False, other_dy)
        self.call("ResidualLayerNormGrad", x.dtype, *inputs, *outputs_and_rest)
        return {name: tensor for name, tensor in outputs.items() if tensor is not None}

    def attention(self, qkv, splits, options, seed, bias=None, rotation=None):
        rows, _, heads, size = qkv.shape
        output, logsumexp = self.nan(rows, heads, size, dtype=qkv.dtype), self.nan(rows, heads)
        inputs = attention_inputs(qkv, splits, options, seed, bias, rotation)
        self.call("VarlenAttention", qkv.dtype, *inputs, output, logsumexp)
        return {"output": output, "logsumexp": logsumexp}

    def attention_grad(
        self, d_output, qkv, output, logsumexp, splits, options, seed, bias=None, rotation=None
    ):
        d_qkv = self.nan(*qkv.shape, dtype=qkv.dtype)
        inputs = attention_inputs(qkv, splits, options, seed, bias, rotation)
        distances = 0 if bias is None else bias.shape[1]
        sizes = (qkv.shape[0], qkv.shape[2], len(splits) - 1, distances)
        scratch = self.scratch("VarlenAttention", *sizes)
        d_bias = None if bias is None else self.nan(*bias.shape)
        outputs = (output, logsumexp, d_output, d_qkv, d_bias, scratch)
        self.call("VarlenAttentionGrad", qkv.dtype, *inputs, *outputs)
        return {"d_qkv": d_qkv} | ({} if bias is None else {"d_distance_bias": d_bias})


def tail(tensor):
    """Returns the numbers after the end of a tensor in its memory."""
    whole = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return whole.set_(tensor.untyped_storage())[tensor.numel() :]


def attention_sizes(qkv, splits):
    """Returns attention's arguments for row splits `[B + 1]`, and the sizes of `[R, 3, N, D]`."""
    rows, _, heads, size = qkv.shape
    return splits, splits.dtype == torch.int64, len(splits) - 1, rows, heads, size


def attention_inputs(qkv, splits, options, seed, bias, rotation):
    """Returns the arguments; `bias` is `[N, 2 M + 1]` or None, `rotation` `[P, S]` or None."""
    bias = NO_BIAS if bias is None else (bias, bias.shape[1] // 2)
    rotation = NO_ROTATION if rotation is None else (rotation, *rotation.shape)
    return qkv, *attention_sizes(qkv, splits), *options, seed, *bias, *rotation, NO_LENGTH


@functools.cache
def _structure(*types):
    """Makes a C structure with fields of these types."""
    fields = [(f"field_{i}", field_type) for i, field_type in enumerate(types)]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def _converted(argument):
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, torch.Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, bool):
        return ctypes.c_bool(argument)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return ctypes.c_int64(argument)
