"""Builds, checks and times the CUDA kernels on a GPU, with nvcc and PyTorch, without TensorFlow.

    python tools/check_cuda_kernels.py
    python tools/check_cuda_kernels.py --no_timing
    python tools/check_cuda_kernels.py --build_only --architecture=sm_80

Needs nvcc 12 or 13 (in $CUDA_HOME/bin or on PATH), PyTorch with CUDA, and a GPU of compute
capability 8.0 or more; --build_only needs only nvcc. The exit status is 1 if a check fails, and 2
if nvcc, PyTorch or the GPU is missing.

Every op and its gradient are compared with float64 for several dtypes and shapes. Outputs are
filled with NaN before each call, so that missing values show. Repeated calls, calls in place and
calls recorded in a CUDA graph must give the same bits. See cuda_timing.py for how times are
measured.
"""

import argparse
import ctypes
import dataclasses
import math
import pathlib
import sys
import tempfile

from cuda_build import ROOT, build, find_nvcc
from cuda_timing import Timer

EPSILON = 1e-12
SEED = 0x123456789ABCDEF0


class Missing(Exception):
    """Something that is needed is missing on this machine."""


@dataclasses.dataclass
class Kernels:
    """Calls the launchers of cuda_launchers.h on PyTorch's tensors and its current stream.

    On the CPU it calls the emulated launchers.
    """

    library: ctypes.CDLL
    torch: object
    device: str = "cuda"

    def __post_init__(self):
        for name in ("BiasGelu", "ResidualLayerNorm", "VarlenAttention"):
            getattr(self.library, f"BertTfCuda{name}GradScratch").restype = ctypes.c_int64
        torch = self.torch
        self.types = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

    def nan(self, *shape, dtype=None):
        """Returns an output buffer; elements that a kernel does not write stay NaN."""
        return self.torch.full(
            shape, float("nan"), dtype=dtype or self.torch.float32, device=self.device
        )

    def call(self, name, dtype, *arguments):
        converted = [ctypes.c_int(self.types[dtype])]
        stream = self.torch.cuda.current_stream() if self.device == "cuda" else None
        for argument in (*arguments, stream):
            if argument is None:
                converted.append(ctypes.c_void_p(None))
            elif isinstance(argument, self.torch.Tensor):
                converted.append(ctypes.c_void_p(argument.data_ptr()))
            elif isinstance(argument, self.torch.cuda.Stream):
                converted.append(ctypes.c_void_p(argument.cuda_stream))
            elif isinstance(argument, bool):
                converted.append(ctypes.c_int(argument))
            elif isinstance(argument, float):
                converted.append(ctypes.c_float(argument))
            else:
                converted.append(ctypes.c_int64(argument))
        status = getattr(self.library, f"BertTfCuda{name}")(*converted)
        if status != 0:
            raise RuntimeError(f"BertTfCuda{name} returned CUDA error {status}")

    def scratch(self, name, *sizes):
        size = getattr(self.library, f"BertTfCuda{name}GradScratch")
        return self.nan(max(size(*(ctypes.c_int64(size) for size in sizes)), 1))

    def bias_gelu(self, x, bias, approximate):
        y = self.nan(*x.shape, dtype=x.dtype)
        self.call("BiasGelu", x.dtype, x, bias, x.shape[0], x.shape[1], approximate, y)
        return {"y": y}

    def bias_gelu_grad(self, dy, x, bias, approximate):
        dx, dbias = self.nan(*x.shape, dtype=x.dtype), self.nan(*bias.shape, dtype=x.dtype)
        self.call(
            "BiasGeluGrad",
            x.dtype,
            dy,
            x,
            bias,
            x.shape[0],
            x.shape[1],
            approximate,
            dx,
            dbias,
            self.scratch("BiasGelu", *x.shape),
        )
        return {"dx": dx, "dbias": dbias}

    def layer_norm(self, x, residual, bias, gamma, beta, rate, seed):
        y = self.nan(*x.shape, dtype=x.dtype)
        mean, rstd = self.nan(x.shape[0]), self.nan(x.shape[0])
        self.call(
            "ResidualLayerNorm",
            x.dtype,
            x,
            residual,
            bias,
            gamma,
            beta,
            x.shape[0],
            x.shape[1],
            EPSILON,
            rate,
            seed,
            y,
            mean,
            rstd,
        )
        return {"y": y, "mean": mean, "rstd": rstd}

    def layer_norm_grad(self, dy, x, residual, bias, gamma, mean, rstd, rate, seed):
        dx = self.nan(*x.shape, dtype=x.dtype)
        dresidual = self.nan(*x.shape, dtype=x.dtype) if rate > 0 and residual is not None else None
        dbias = None if bias is None else self.nan(*gamma.shape, dtype=x.dtype)
        dgamma, dbeta = (self.nan(*gamma.shape, dtype=x.dtype) for _ in range(2))
        self.call(
            "ResidualLayerNormGrad",
            x.dtype,
            dy,
            x,
            residual,
            bias,
            gamma,
            mean,
            rstd,
            x.shape[0],
            x.shape[1],
            rate,
            seed,
            dx,
            dresidual,
            dbias,
            dgamma,
            dbeta,
            self.scratch("ResidualLayerNorm", *x.shape),
        )
        outputs = {
            "dx": dx,
            "dresidual": dresidual,
            "dbias": dbias,
            "dgamma": dgamma,
            "dbeta": dbeta,
        }
        return {name: tensor for name, tensor in outputs.items() if tensor is not None}

    def attention(self, qkv, splits, options, seed):
        rows, _, heads, size = qkv.shape
        output, logsumexp = self.nan(rows, heads, size, dtype=qkv.dtype), self.nan(rows, heads)
        self.call(
            "VarlenAttention",
            qkv.dtype,
            qkv,
            splits,
            splits.dtype == self.torch.int64,
            len(splits) - 1,
            rows,
            heads,
            size,
            *options,
            seed,
            output,
            logsumexp,
        )
        return {"output": output, "logsumexp": logsumexp}

    def attention_grad(self, d_output, qkv, output, logsumexp, splits, options, seed):
        rows, _, heads, size = qkv.shape
        d_qkv = self.nan(*qkv.shape, dtype=qkv.dtype)
        self.call(
            "VarlenAttentionGrad",
            qkv.dtype,
            d_output,
            qkv,
            output,
            logsumexp,
            splits,
            splits.dtype == self.torch.int64,
            len(splits) - 1,
            rows,
            heads,
            size,
            *options,
            seed,
            d_qkv,
            self.scratch("VarlenAttention", rows, heads),
        )
        return {"d_qkv": d_qkv}


class Checker:
    """Compares the kernels with float64 and counts the failures."""

    REPEATS = 5  # a data race rarely shows in a single run

    def __init__(self, kernels: Kernels):
        self.kernels = kernels
        self.torch = kernels.torch
        self.device = kernels.device
        self.checks = 0
        self.failures = 0
        self.worst = {}
        sys.path.insert(0, str(ROOT))
        from tests.ops.philox_numpy import element_bits

        self.element_bits = element_bits
        self.seed = self.torch.tensor(SEED, dtype=self.torch.int64, device=self.device)

    def random(self, *shape, dtype, scale=1.0, mean=0.0):
        numbers = self.torch.randn(*shape, device=self.device) * scale + mean
        return numbers.to(dtype)

    def kept(self, count, rate, stream=0):
        rate = ctypes.c_float(rate).value
        bits = self.element_bits(SEED, count, stream)
        return self.torch.from_numpy(bits >= int(rate * 2.0**32)).to(self.device)

    def run(self, kernel, *arguments):
        """Returns the kernel's outputs; a repetition with other bits is a failure."""
        outputs = kernel(*arguments)
        for _ in range(self.REPEATS - 1):
            self.same_bits(outputs, kernel(*arguments), "another run")
        return outputs

    def same_bits(self, outputs, again, what):
        for name, tensor in outputs.items():
            same = self.torch.equal(
                tensor.view(self.torch.uint8), again[name].view(self.torch.uint8)
            )
            self.count(same, f"{name}: {what} gave other bits")

    def recorded(self, kernel, *arguments):
        """Checks that a CUDA graph of the call, such as XLA may make, gives the same outputs."""
        outputs = kernel(*arguments)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            again = kernel(*arguments)
        for _ in range(2):
            graph.replay()
            self.torch.cuda.synchronize()
            self.same_bits(outputs, again, "a recorded call")

    def count(self, ok, what):
        self.checks += 1
        if not ok:
            self.failures += 1
            print(f"FAILED {what}")

    def near(self, op, what, actual, expected, roundings=1.0):
        """Checks for errors of few roundings of the dtype, relative to max(1, largest value)."""
        eps = self.torch.finfo(actual.dtype).eps
        tolerance = 1e-5 + roundings * eps
        if actual.numel() == 0:
            return
        scale = max(1.0, expected.abs().max().item())
        error = (actual.double() - expected).abs().max().item() / scale
        key = (op, str(actual.dtype).removeprefix("torch."))
        self.worst[key] = max(self.worst.get(key, 0.0), error)
        self.count(error <= tolerance, f"{op} {what}: error {error:.2e} over {tolerance:.2e}")

    def near_each(self, what, actual, expected, slack=0.0):
        """Checks that every value is within one rounding relative to itself, plus `slack`."""
        eps = self.torch.finfo(actual.dtype).eps
        # float32 flushes subnormal values to zero; 16-bit types are rounded from float32.
        tiny = max(
            self.torch.finfo(self.torch.float32).tiny,
            self.torch.finfo(actual.dtype).smallest_normal * eps,
        )
        excess = (actual.double() - expected).abs() - (1e-5 + eps) * expected.abs() - slack - tiny
        worst = excess.max().item() if excess.numel() else 0.0
        self.count(worst <= 0.0, f"{what}: an error is {worst:.2e} above its tolerance")

    def gelu64(self, s, approximate):
        """Computes GELU in float64 with full relative precision also for values near zero."""
        torch = self.torch
        if approximate:
            return s * torch.sigmoid(2 * (2 / math.pi) ** 0.5 * (s + 0.044715 * s**3))
        return 0.5 * s * torch.erfc(-s / 2**0.5)

    def bias_gelu(self, rows, columns, dtype, approximate):
        x = self.random(rows, columns, dtype=dtype, scale=3.0)
        bias = self.random(columns, dtype=dtype)
        dy = self.random(rows, columns, dtype=dtype)
        # The kernels add in float32.
        s64 = (x.float() + bias.float()).double().requires_grad_()
        y64 = self.gelu64(s64, approximate)
        y64.backward(dy.double())
        context = f"{[rows, columns]} {dtype} {'tanh' if approximate else 'erf'}"
        outputs = self.run(self.kernels.bias_gelu, x, bias, approximate)
        self.near("fused_bias_gelu", f"y {context}", outputs["y"], y64.detach())
        self.near_each(f"fused_bias_gelu y {context}", outputs["y"], y64.detach())
        grads = self.run(self.kernels.bias_gelu_grad, dy, x, bias, approximate)
        self.near("fused_bias_gelu", f"dx {context}", grads["dx"], s64.grad)
        # Where the slope crosses zero, its error is one rounding of 1 in float32.
        self.near_each(
            f"fused_bias_gelu dx {context}", grads["dx"], s64.grad, slack=1e-6 * dy.double().abs()
        )
        self.near("fused_bias_gelu", f"dbias {context}", grads["dbias"], s64.grad.sum(0))

    def layer_norm(self, rows, columns, dtype, rate, has_residual, has_bias):
        torch = self.torch
        x, dy = (self.random(rows, columns, dtype=dtype) for _ in range(2))
        residual = self.random(rows, columns, dtype=dtype) if has_residual else None
        bias = self.random(columns, dtype=dtype) if has_bias else None
        gamma, beta = self.random(columns, dtype=dtype, mean=1.0), self.random(columns, dtype=dtype)
        wide = {"x": x, "residual": residual, "bias": bias, "gamma": gamma, "beta": beta}
        wide = {k: v.double().requires_grad_() for k, v in wide.items() if v is not None}
        z = wide["x"] + wide.get("bias", 0.0)
        if rate > 0:
            keep = self.kept(rows * columns, rate).reshape(rows, columns)
            z = torch.where(keep, z / (1.0 - rate), 0.0)
        z = z + wide.get("residual", 0.0)
        y64 = torch.nn.functional.layer_norm(
            z, (columns,), wide["gamma"], wide["beta"], eps=EPSILON
        )
        y64.backward(dy.double())
        context = f"{[rows, columns]} {dtype} rate={rate} residual={has_residual} bias={has_bias}"
        outputs = self.run(self.kernels.layer_norm, x, residual, bias, gamma, beta, rate, self.seed)
        self.near("fused_residual_layer_norm", f"y {context}", outputs["y"], y64.detach())
        grads = self.run(
            self.kernels.layer_norm_grad,
            dy,
            x,
            residual,
            bias,
            gamma,
            outputs["mean"],
            outputs["rstd"],
            rate,
            self.seed,
        )
        for name, tensor in grads.items():
            self.near(
                "fused_residual_layer_norm",
                f"{name} {context}",
                tensor,
                wide[name.removeprefix("d")].grad,
            )

    def attention(
        self,
        lengths,
        heads,
        size,
        dtype,
        causal=False,
        window=-1,
        globals_=0,
        rate=0.0,
        splits_type="int64",
    ):
        torch = self.torch
        rows = sum(lengths)
        qkv = self.random(rows, 3, heads, size, dtype=dtype)
        d_output = self.random(rows, heads, size, dtype=dtype)
        splits = torch.tensor([0, *lengths]).cumsum(0).to(self.device, getattr(torch, splits_type))
        qkv64 = qkv.double().requires_grad_()
        outputs64, logsumexps64 = [], []
        first = 0
        for length in lengths:
            q, k, v = qkv64[first : first + length].permute(1, 2, 0, 3)  # [N, T, D] each
            scores = q @ k.transpose(1, 2) / size**0.5  # [N, T, T]
            position = torch.arange(length, device=self.device)
            query, key = position[:, None], position[None, :]
            sees = torch.ones(length, length, dtype=torch.bool, device=self.device)
            if window >= 0:
                sees = ((query - key).abs() <= window) | (query < globals_) | (key < globals_)
            if causal:
                sees &= key <= query
            scores = scores.masked_fill(~sees, -float("inf"))
            probabilities = scores.softmax(-1)
            if rate > 0 and length:
                keep = torch.stack(
                    [
                        torch.stack(
                            [
                                self.kept(length, rate, (first + row) * heads + head)
                                for row in range(length)
                            ]
                        )
                        for head in range(heads)
                    ]
                )
                probabilities = torch.where(keep, probabilities / (1.0 - rate), 0.0)
            outputs64.append((probabilities @ v).transpose(0, 1))  # [T, N, D]
            logsumexps64.append(scores.logsumexp(-1).transpose(0, 1))
            first += length
        output64 = torch.cat(outputs64)
        output64.backward(d_output.double())
        options = (causal, window, globals_, rate)
        context = f"{lengths} N={heads} D={size} {dtype} {options}"
        outputs = self.run(self.kernels.attention, qkv, splits, options, self.seed)
        self.near("varlen_attention", f"output {context}", outputs["output"], output64.detach(), 2)
        self.near(
            "varlen_attention",
            f"logsumexp {context}",
            outputs["logsumexp"],
            torch.cat(logsumexps64).detach(),
            2,
        )
        grads = self.run(
            self.kernels.attention_grad,
            d_output,
            qkv,
            outputs["output"],
            outputs["logsumexp"],
            splits,
            options,
            self.seed,
        )
        self.near("varlen_attention", f"d_qkv {context}", grads["d_qkv"], qkv64.grad, 4)

    def in_place(self, dtype):
        """Checks calls in place, as TensorFlow makes them: y in x, dx in dy, dresidual in x."""
        kernels, rows, columns = self.kernels, 300, 768
        x, residual, dy = (self.random(rows, columns, dtype=dtype) for _ in range(3))
        bias, gamma, beta = (self.random(columns, dtype=dtype) for _ in range(3))
        y, dx = x.clone(), dy.clone()
        kernels.call("BiasGelu", dtype, y, bias, rows, columns, False, y)
        self.same_bits(kernels.bias_gelu(x, bias, False), {"y": y}, "a call in place")
        kernels.call(
            "BiasGeluGrad",
            dtype,
            dx,
            x,
            bias,
            rows,
            columns,
            False,
            dx,
            self.nan(columns, dtype),
            kernels.scratch("BiasGelu", rows, columns),
        )
        wanted = kernels.bias_gelu_grad(dy, x, bias, False)
        self.same_bits({"dx": wanted["dx"]}, {"dx": dx}, "a call in place")

        y, mean, rstd = x.clone(), self.nan(rows), self.nan(rows)
        kernels.call(
            "ResidualLayerNorm",
            dtype,
            y,
            residual,
            bias,
            gamma,
            beta,
            rows,
            columns,
            EPSILON,
            0.1,
            self.seed,
            y,
            mean,
            rstd,
        )
        wanted = kernels.layer_norm(x, residual, bias, gamma, beta, 0.1, self.seed)
        self.same_bits(wanted, {"y": y, "mean": mean, "rstd": rstd}, "a call in place")
        dx, dresidual = dy.clone(), x.clone()
        sums = [self.nan(columns, dtype) for _ in range(3)]
        kernels.call(
            "ResidualLayerNormGrad",
            dtype,
            dx,
            dresidual,
            residual,
            bias,
            gamma,
            mean,
            rstd,
            rows,
            columns,
            0.1,
            self.seed,
            dx,
            dresidual,
            *sums,
            kernels.scratch("ResidualLayerNorm", rows, columns),
        )
        wanted = kernels.layer_norm_grad(dy, x, residual, bias, gamma, mean, rstd, 0.1, self.seed)
        names = ("dx", "dresidual", "dbias", "dgamma", "dbeta")
        self.same_bits(wanted, dict(zip(names, (dx, dresidual, *sums))), "a call in place")

    def nan(self, size, dtype=None):
        return self.kernels.nan(size, dtype=dtype)

    def all_recorded(self, dtype):
        kernels = self.kernels
        x, residual, dy = (self.random(300, 768, dtype=dtype) for _ in range(3))
        bias, gamma, beta = (self.random(768, dtype=dtype) for _ in range(3))
        self.recorded(kernels.bias_gelu, x, bias, False)
        self.recorded(kernels.bias_gelu_grad, dy, x, bias, False)
        inputs = (x, residual, bias, gamma)
        out = kernels.layer_norm(*inputs, beta, 0.1, self.seed)
        self.recorded(kernels.layer_norm, *inputs, beta, 0.1, self.seed)
        self.recorded(
            kernels.layer_norm_grad, dy, *inputs, out["mean"], out["rstd"], 0.1, self.seed
        )
        qkv, d_output = (self.random(300, *shape, dtype=dtype) for shape in ((3, 4, 64), (4, 64)))
        splits = self.torch.tensor([0, 100, 300], device=self.device)
        options = (False, -1, 0, 0.1)
        out = kernels.attention(qkv, splits, options, self.seed)
        self.recorded(kernels.attention, qkv, splits, options, self.seed)
        self.recorded(
            kernels.attention_grad,
            d_output,
            qkv,
            out["output"],
            out["logsumexp"],
            splits,
            options,
            self.seed,
        )

    def all(self):
        torch = self.torch
        torch.manual_seed(1)
        for dtype in self.kernels.types:
            self.in_place(dtype)
            self.all_recorded(dtype)
            for approximate in (False, True):
                for rows, columns in ((1, 1), (7, 3), (33, 257), (1000, 768), (8192, 3072), (0, 8)):
                    self.bias_gelu(rows, columns, dtype, approximate)
            for rate in (0.0, 0.1):
                for rows, columns in (
                    (1, 64),
                    (37, 77),
                    (129, 312),
                    (1000, 768),
                    (2000, 1024),
                    (100, 1088),
                    (33, 2048),
                    (9, 3072),
                    (5, 4096),
                    (0, 64),
                ):
                    for has_residual in (False, True):
                        self.layer_norm(rows, columns, dtype, rate, has_residual, not has_residual)
                    self.layer_norm(rows, columns, dtype, rate, True, True)
            for size in (5, 8, 32, 40, 64):
                self.attention([3, 0, 1, 64, 65, 200], 2, size, dtype)
                self.attention([70, 1], 3, size, dtype, causal=True, rate=0.1, splits_type="int32")
            for window, globals_ in ((0, 0), (5, 2), (64, 0), (100, 70)):
                for causal in (False, True):
                    self.attention([300, 67], 2, 64, dtype, causal, window, globals_, 0.1)
            self.attention([512] * 4 + [17, 129], 12, 64, dtype)


def require_gpu():
    """Returns PyTorch and the architecture of its GPU.

    Raises:
        Missing: If PyTorch or a GPU that the kernels support is missing.
    """
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch ({error}): pip install torch") from None
    if not torch.cuda.is_available():
        raise Missing("a GPU that PyTorch sees (torch.cuda.is_available() is False)")
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        raise Missing(f"a GPU of compute capability 8.0 or more. Received: {capability}")
    return torch, "sm_{}{}".format(*capability)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build_only",
        action="store_true",
        help="Build the kernels, but do not check or time them.",
    )
    parser.add_argument(
        "--no_timing", action="store_true", help="Check the kernels, but do not time them."
    )
    parser.add_argument(
        "--architecture",
        default="sm_90",
        help="With --build_only: the GPU architecture to build for. Default: sm_90.",
    )
    flags = parser.parse_args()
    try:
        nvcc = find_nvcc()
        if nvcc is None:
            raise Missing("nvcc: set CUDA_HOME or put it on PATH")
        torch, architecture = (None, flags.architecture) if flags.build_only else require_gpu()
    except Missing as missing:
        print(f"check_cuda_kernels: not run; this machine lacks {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        library = build(nvcc, architecture, pathlib.Path(directory))
        print(f"built for {architecture} with {nvcc}: {library.stat().st_size:,} bytes")
        launchers = ctypes.CDLL(str(library))
        if flags.build_only:
            return 0
        kernels = Kernels(launchers, torch)
        checker = Checker(kernels)
        checker.all()
        torch.cuda.synchronize()
        for (op, dtype), error in sorted(checker.worst.items()):
            print(f"{op} {dtype}: worst error {error:.1e}, relative to the largest value")
        print(f"{checker.checks} checks, {checker.failures} failures")
        if checker.failures:
            return 1
        if not flags.no_timing:
            Timer(kernels, EPSILON).all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
