"""Checks and times the CUDA kernels on a GPU, without TensorFlow: nvcc, PyTorch and ctypes.

    python tools/check_cuda_kernels.py                 # build, check, time
    python tools/check_cuda_kernels.py --no_timing
    python tools/check_cuda_kernels.py --build_only    # where there is nvcc and no GPU

Needs nvcc 12 or 13 (in $CUDA_HOME/bin or on PATH), a GPU of compute capability 8.0 or more and
PyTorch with CUDA; says which of them is missing. The exit status is 1 where a check fails and 2
where something is missing.

Every op, forward and gradient, is compared with float64 over types, shapes and odd sizes; outputs
begin as NaNs; every call is repeated and must give equal bits. Times are medians between CUDA
events, beside PyTorch's own kernels, torch.compile, and the time that the bytes alone take at the
bandwidth of a copy measured in the same run.
"""

import argparse
import ctypes
import dataclasses
import pathlib
import statistics
import sys
import tempfile

from cuda_build import ROOT, build, find_nvcc

EPSILON = 1e-12
SEED = 0x123456789ABCDEF0


class Missing(Exception):
    """Something that this machine lacks."""


@dataclasses.dataclass
class Kernels:
    """The launchers of cuda_launchers.h on PyTorch's tensors and its current stream."""

    library: ctypes.CDLL
    torch: object

    def __post_init__(self):
        for name in ("BiasGelu", "ResidualLayerNorm", "VarlenAttention"):
            getattr(self.library, f"BertTfCuda{name}GradScratch").restype = ctypes.c_int64
        torch = self.torch
        self.types = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}

    def nan(self, *shape, dtype=None):
        """Where a kernel writes: what it leaves out stays NaN."""
        return self.torch.full(
            shape, float("nan"), dtype=dtype or self.torch.float32, device="cuda"
        )

    def call(self, name, dtype, *arguments):
        converted = [ctypes.c_int(self.types[dtype])]
        for argument in (*arguments, self.torch.cuda.current_stream()):
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
        self.call("BiasGeluGrad", x.dtype, dy, x, bias, x.shape[0], x.shape[1], approximate, dx,
                  dbias, self.scratch("BiasGelu", *x.shape))
        return {"dx": dx, "dbias": dbias}

    def layer_norm(self, x, residual, bias, gamma, beta, rate, seed):
        y = self.nan(*x.shape, dtype=x.dtype)
        mean, rstd = self.nan(x.shape[0]), self.nan(x.shape[0])
        self.call("ResidualLayerNorm", x.dtype, x, residual, bias, gamma, beta, x.shape[0],
                  x.shape[1], EPSILON, rate, seed, y, mean, rstd)
        return {"y": y, "mean": mean, "rstd": rstd}

    def layer_norm_grad(self, dy, x, residual, bias, gamma, mean, rstd, rate, seed):
        dx = self.nan(*x.shape, dtype=x.dtype)
        dresidual = self.nan(*x.shape, dtype=x.dtype) if rate > 0 and residual is not None else None
        dbias = None if bias is None else self.nan(*gamma.shape, dtype=x.dtype)
        dgamma, dbeta = (self.nan(*gamma.shape, dtype=x.dtype) for _ in range(2))
        self.call("ResidualLayerNormGrad", x.dtype, dy, x, residual, bias, gamma, mean, rstd,
                  x.shape[0], x.shape[1], rate, seed, dx, dresidual, dbias, dgamma, dbeta,
                  self.scratch("ResidualLayerNorm", *x.shape))
        outputs = {"dx": dx, "dresidual": dresidual, "dbias": dbias, "dgamma": dgamma,
                   "dbeta": dbeta}
        return {name: tensor for name, tensor in outputs.items() if tensor is not None}

    def attention(self, qkv, splits, options, seed):
        rows, _, heads, size = qkv.shape
        output, logsumexp = self.nan(rows, heads, size, dtype=qkv.dtype), self.nan(rows, heads)
        self.call("VarlenAttention", qkv.dtype, qkv, splits, splits.dtype == self.torch.int64,
                  len(splits) - 1, rows, heads, size, *options, seed, output, logsumexp)
        return {"output": output, "logsumexp": logsumexp}

    def attention_grad(self, d_output, qkv, output, logsumexp, splits, options, seed):
        rows, _, heads, size = qkv.shape
        d_qkv = self.nan(*qkv.shape, dtype=qkv.dtype)
        self.call("VarlenAttentionGrad", qkv.dtype, d_output, qkv, output, logsumexp, splits,
                  splits.dtype == self.torch.int64, len(splits) - 1, rows, heads, size, *options,
                  seed, d_qkv, self.scratch("VarlenAttention", rows, heads))
        return {"d_qkv": d_qkv}


class Checker:
    """Compares the kernels with float64 and counts what fails."""

    REPEATS = 5  # a race rarely shows in one run

    def __init__(self, kernels: Kernels):
        self.kernels = kernels
        self.torch = kernels.torch
        self.checks = 0
        self.failures = 0
        self.worst = {}
        sys.path.insert(0, str(ROOT))
        from tests.ops.philox_numpy import element_bits

        self.element_bits = element_bits
        self.seed = self.torch.tensor(SEED, dtype=self.torch.int64, device="cuda")

    def random(self, *shape, dtype, scale=1.0, mean=0.0):
        numbers = self.torch.randn(*shape, device="cuda") * scale + mean
        return numbers.to(dtype)

    def kept(self, count, rate, stream=0):
        rate = ctypes.c_float(rate).value
        bits = self.element_bits(SEED, count, stream)
        return self.torch.from_numpy(bits >= int(rate * 2.0**32)).cuda()

    def run(self, kernel, *arguments):
        """The kernel's outputs; a repetition with other bits is a failure."""
        outputs = kernel(*arguments)
        for _ in range(self.REPEATS - 1):
            again = kernel(*arguments)
            for name, tensor in outputs.items():
                same = self.torch.equal(
                    tensor.view(self.torch.uint8), again[name].view(self.torch.uint8)
                )
                self.count(same, f"{name}: another run gave other bits")
        return outputs

    def count(self, ok, what):
        self.checks += 1
        if not ok:
            self.failures += 1
            print(f"FAILED {what}")

    def near(self, op, what, actual, expected, roundings=1.0):
        """Within a few roundings of the type, relative to max(1, the largest number)."""
        eps = self.torch.finfo(actual.dtype).eps
        tolerance = 1e-5 + roundings * eps
        if actual.numel() == 0:
            return
        scale = max(1.0, expected.abs().max().item())
        error = (actual.double() - expected).abs().max().item() / scale
        key = (op, str(actual.dtype).removeprefix("torch."))
        self.worst[key] = max(self.worst.get(key, 0.0), error)
        self.count(error <= tolerance, f"{op} {what}: error {error:.2e} over {tolerance:.2e}")

    def bias_gelu(self, rows, columns, dtype, approximate):
        functional = self.torch.nn.functional
        x = self.random(rows, columns, dtype=dtype, scale=3.0)
        bias = self.random(columns, dtype=dtype)
        dy = self.random(rows, columns, dtype=dtype)
        x64, bias64 = (tensor.double().requires_grad_() for tensor in (x, bias))
        y64 = functional.gelu(x64 + bias64, approximate="tanh" if approximate else "none")
        y64.backward(dy.double())
        context = f"{[rows, columns]} {dtype} {'tanh' if approximate else 'erf'}"
        outputs = self.run(self.kernels.bias_gelu, x, bias, approximate)
        self.near("fused_bias_gelu", f"y {context}", outputs["y"], y64.detach())
        grads = self.run(self.kernels.bias_gelu_grad, dy, x, bias, approximate)
        self.near("fused_bias_gelu", f"dx {context}", grads["dx"], x64.grad)
        self.near("fused_bias_gelu", f"dbias {context}", grads["dbias"], bias64.grad)

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
        grads = self.run(self.kernels.layer_norm_grad, dy, x, residual, bias, gamma,
                         outputs["mean"], outputs["rstd"], rate, self.seed)
        for name, tensor in grads.items():
            self.near("fused_residual_layer_norm", f"{name} {context}", tensor,
                      wide[name.removeprefix("d")].grad)

    def attention(self, lengths, heads, size, dtype, causal=False, window=-1, globals_=0,
                  rate=0.0, splits_type="int64"):
        torch = self.torch
        rows = sum(lengths)
        qkv = self.random(rows, 3, heads, size, dtype=dtype)
        d_output = self.random(rows, heads, size, dtype=dtype)
        splits = torch.tensor([0, *lengths]).cumsum(0).to("cuda", getattr(torch, splits_type))
        qkv64 = qkv.double().requires_grad_()
        outputs64, logsumexps64 = [], []
        first = 0
        for length in lengths:
            q, k, v = qkv64[first : first + length].permute(1, 2, 0, 3)  # [N, T, D] each
            scores = q @ k.transpose(1, 2) / size**0.5  # [N, T, T]
            position = torch.arange(length, device="cuda")
            query, key = position[:, None], position[None, :]
            sees = torch.ones(length, length, dtype=torch.bool, device="cuda")
            if window >= 0:
                sees = ((query - key).abs() <= window) | (query < globals_) | (key < globals_)
            if causal:
                sees &= key <= query
            scores = scores.masked_fill(~sees, -float("inf"))
            probabilities = scores.softmax(-1)
            if rate > 0 and length:
                keep = torch.stack([
                    torch.stack([self.kept(length, rate, (first + row) * heads + head)
                                 for row in range(length)])
                    for head in range(heads)
                ])
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
        self.near("varlen_attention", f"logsumexp {context}", outputs["logsumexp"],
                  torch.cat(logsumexps64).detach(), 2)
        grads = self.run(self.kernels.attention_grad, d_output, qkv, outputs["output"],
                         outputs["logsumexp"], splits, options, self.seed)
        self.near("varlen_attention", f"d_qkv {context}", grads["d_qkv"], qkv64.grad, 4)

    def all(self):
        torch = self.torch
        torch.manual_seed(1)
        for dtype in self.kernels.types:
            for approximate in (False, True):
                for rows, columns in ((1, 1), (7, 3), (33, 257), (1000, 768), (8192, 3072), (0, 8)):
                    self.bias_gelu(rows, columns, dtype, approximate)
            for rate in (0.0, 0.1):
                for rows, columns in ((1, 64), (37, 77), (129, 312), (1000, 768), (2000, 1024),
                                      (100, 1088), (33, 2048), (9, 3072), (5, 4096), (0, 64)):
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


class Timer:
    """Medians of many calls, and the floor that the bytes set."""

    def __init__(self, kernels: Kernels):
        self.kernels = kernels
        self.torch = kernels.torch
        source = self.torch.empty(2**28, dtype=self.torch.float32, device="cuda")
        target = self.torch.empty_like(source)
        milliseconds = self.milliseconds(lambda: target.copy_(source))
        self.bandwidth = 2 * source.numel() * 4 / milliseconds * 1e3  # bytes a second

    def milliseconds(self, function, calls=50):
        torch = self.torch
        for _ in range(5):
            function()
        times = []
        for _ in range(calls):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            function()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end))
        return statistics.median(times)

    def row(self, what, bytes_moved, ours, peers):
        """Prints a line of the table: ms of the floor, ours and the peers."""
        floor = bytes_moved / self.bandwidth * 1e3
        mine = self.milliseconds(ours)
        theirs = ", ".join(f"{name} {self.milliseconds(call):.3f}" for name, call in peers.items())
        print(f"{what}: {mine:.3f} ms, {floor / mine:.0%} of the copy bandwidth; {theirs}")

    def grad_of(self, function, inputs, d_output):
        """A call that makes only the gradient."""
        output = function(*inputs)
        return lambda: self.torch.autograd.grad(output, inputs, d_output, retain_graph=True)

    def memory_bound(self, dtype):
        torch, kernels = self.torch, self.kernels
        functional = torch.nn.functional
        for rows, columns in ((8192, 3072), (8192, 4096)):
            x, dy = (torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(2))
            bias = torch.randn(columns, device="cuda").to(dtype)
            y, dbias = torch.empty_like(x), torch.empty_like(bias)
            scratch = kernels.scratch("BiasGelu", rows, columns)
            leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
            plain = lambda x, bias: functional.gelu(x + bias)
            compiled = torch.compile(plain)
            size = x.numel() * x.element_size()
            self.row(
                f"bias_gelu {[rows, columns]} {dtype}", 2 * size,
                lambda: kernels.call("BiasGelu", dtype, x, bias, rows, columns, False, y),
                {"F.gelu(x + bias)": lambda: plain(x, bias),
                 "torch.compile": lambda: compiled(x, bias)},
            )
            self.row(
                f"its gradient {[rows, columns]} {dtype}", 3 * size,
                lambda: kernels.call("BiasGeluGrad", dtype, dy, x, bias, rows, columns, False, y,
                                     dbias, scratch),
                {"autograd": self.grad_of(plain, leaves, dy),
                 "torch.compile": self.grad_of(compiled, leaves, dy)},
            )
        for rows, columns in ((8192, 768), (8192, 1024)):
            x, residual, dy = (torch.randn(rows, columns, device="cuda").to(dtype)
                               for _ in range(3))
            bias, gamma, beta = (torch.randn(columns, device="cuda").to(dtype) for _ in range(3))
            out = kernels.layer_norm(x, residual, bias, gamma, beta, 0.0, None)
            y, (dbias, dgamma, dbeta) = torch.empty_like(x), (torch.empty_like(bias)
                                                              for _ in range(3))
            scratch = kernels.scratch("ResidualLayerNorm", rows, columns)
            leaves = [leaf.clone().requires_grad_() for leaf in (x, residual, bias, gamma, beta)]
            plain = lambda x, residual, bias, gamma, beta: functional.layer_norm(
                residual + (x + bias), (columns,), gamma, beta, eps=EPSILON
            )
            compiled = torch.compile(plain)
            size = x.numel() * x.element_size()
            self.row(
                f"residual_layer_norm {[rows, columns]} {dtype}", 3 * size,
                lambda: kernels.call("ResidualLayerNorm", dtype, x, residual, bias, gamma, beta,
                                     rows, columns, EPSILON, 0.0, None, y, out["mean"],
                                     out["rstd"]),
                {"F.layer_norm": lambda: plain(x, residual, bias, gamma, beta),
                 "torch.compile": lambda: compiled(x, residual, bias, gamma, beta)},
            )
            self.row(
                f"its gradient {[rows, columns]} {dtype}", 4 * size,
                lambda: kernels.call("ResidualLayerNormGrad", dtype, dy, x, residual, bias, gamma,
                                     out["mean"], out["rstd"], rows, columns, 0.0, None, y, None,
                                     dbias, dgamma, dbeta, scratch),
                {"autograd": self.grad_of(plain, leaves, dy),
                 "torch.compile": self.grad_of(compiled, leaves, dy)},
            )

    def attention(self, dtype, lengths, heads=12, size=64):
        torch, kernels = self.torch, self.kernels
        rows, longest = sum(lengths), max(lengths)
        qkv = torch.randn(rows, 3, heads, size, device="cuda").to(dtype)
        splits = torch.tensor([0, *lengths]).cumsum(0).cuda()
        options = (False, -1, 0, 0.0)
        out = kernels.attention(qkv, splits, options, None)
        d_output = torch.randn_like(out["output"])
        d_qkv, scratch = torch.empty_like(qkv), kernels.scratch("VarlenAttention", rows, heads)
        padded = [torch.randn(len(lengths), heads, longest, size, device="cuda").to(dtype)
                  .requires_grad_() for _ in range(3)]
        mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).cuda()
        mask = None if all(length == longest for length in lengths) else mask[:, None, None, :]
        sdpa = lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask
        )
        padding = 1 - rows / len(lengths) / longest
        shape = f"{len(lengths)} sequences, {rows} tokens, padding {padding:.0%}"
        moved = rows * heads * size * qkv.element_size()
        common = (splits, True, len(lengths), rows, heads, size, *options, None)
        self.row(
            f"varlen_attention {shape} {dtype}", 4 * moved,
            lambda: kernels.call("VarlenAttention", dtype, qkv, *common, out["output"],
                                 out["logsumexp"]),
            {"padded SDPA": lambda: sdpa(*padded)},
        )
        self.row(
            f"its gradient {shape} {dtype}", 8 * moved,
            lambda: kernels.call("VarlenAttentionGrad", dtype, d_output, qkv, out["output"],
                                 out["logsumexp"], *common, d_qkv, scratch),
            {"padded SDPA": self.grad_of(sdpa, padded, torch.randn_like(padded[0]))},
        )

    def all(self):
        torch = self.torch
        print(f"copy bandwidth {self.bandwidth / 1e9:.0f} GB/s on {torch.cuda.get_device_name()}")
        lengths = torch.randint(16, 513, (64,), generator=torch.Generator().manual_seed(1)).tolist()
        for dtype in (torch.bfloat16, torch.float32):
            self.memory_bound(dtype)
            self.attention(dtype, [512] * 32)
            self.attention(dtype, lengths)


def require_gpu():
    """PyTorch with a GPU that the kernels run on.

    Raises:
        Missing: there is none.
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build_only", action="store_true", help="Stop when the object is built.")
    parser.add_argument("--no_timing", action="store_true", help="Check, but do not time.")
    parser.add_argument("--architecture", default="sm_90",
                        help="What --build_only builds for; else it is the GPU's.")
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
            print(f"{op} {dtype}: worst error {error:.1e} of the largest number")
        print(f"{checker.checks} checks, {checker.failures} failures")
        if checker.failures:
            return 1
        if not flags.no_timing:
            Timer(kernels).all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
