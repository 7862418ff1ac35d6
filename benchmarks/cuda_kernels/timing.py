"""Measures the CUDA kernels, for benchmarks/cuda_kernels.

A time is the median between two CUDA events. It is compared with the times of PyTorch's kernels and
of torch.compile, and with the time to move the same bytes at the copy bandwidth of the same run.
"""

import functools
import statistics
import time

import torch
import torch._functorch.config
import torch.nn.attention

from .launchers import EPSILON, attention_inputs


class Timer:
    """Measures median times of many calls of `kernels`, and the copy bandwidth.

    `before` are the kernels of another library. `record` gets what was measured, the share of the
    copy bandwidth, and the milliseconds of each contestant, or None if it failed.
    """

    def __init__(self, kernels, before=None, record=None, flush_bytes=2**30):
        self.kernels = kernels
        self.before = before
        self.record = record or print_times
        # With donated buffers, a compiled gradient frees what autograd saved and runs only once.
        torch._functorch.config.donated_buffer = False
        self.flush = torch.empty(flush_bytes // 4, dtype=torch.float32, device=kernels.device)
        moved = 2 * flush_bytes
        # Bytes per second.
        self.bandwidth = moved / self.milliseconds(self.copy(moved)) * 1e3

    def copy(self, bytes_moved):
        """Returns a copy that reads and writes as many bytes together."""
        source = torch.empty(bytes_moved // 2, dtype=torch.uint8, device=self.kernels.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)

    def milliseconds(self, function, calls=50):
        """Returns the median time of a call in milliseconds.

        Before each call the GPU writes 1 GiB. That empties its caches and keeps it busy while the
        host queues the call, so that the time does not include work of the host. In the emulation,
        it is the time of one call on the CPU.
        """
        if self.kernels.device == "cpu":
            begin = time.perf_counter()
            function()
            return 1e3 * (time.perf_counter() - begin)
        for _ in range(5):
            function()
        events = []
        for _ in range(calls):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush.zero_()
            begin.record()
            function()
            end.record()
            events.append((begin, end))
        torch.cuda.synchronize()
        return statistics.median(begin.elapsed_time(end) for begin, end in events)

    def row(self, what, bytes_moved, ours, peers):
        """Measures a kernel, its share of the copy bandwidth, and the peers.

        `ours` gets the function that calls a launcher. A peer is a function that returns what is
        measured. A launch counts for much in a time this short, so a copy of as many bytes is
        measured too.
        """
        makers = {"ours": lambda: functools.partial(ours, self.kernels.call)}
        if self.before is not None:
            makers["before"] = lambda: functools.partial(ours, self.before.call)
        makers |= {"a copy": lambda: self.copy(bytes_moved)} | peers
        times = {}
        for name, make in makers.items():
            try:
                times[name] = self.milliseconds(make())
            except (RuntimeError, ImportError) as error:  # not on this GPU, or in this PyTorch
                print(f"{what}, {name}: {str(error).splitlines()[0]}")
                times[name] = None
        share = times["ours"] and bytes_moved / self.bandwidth * 1e3 / times["ours"]
        self.record(what, share, times)

    def random(self, *shape, dtype):
        return torch.randn(*shape, device=self.kernels.device).to(dtype)

    def rows(self, op, what, peer, plain, inputs, d_output, passes, forward, gradient):
        """Prints the rows of a memory-bound op and of its gradient.

        `plain` is the op in PyTorch, which the rows call `peer`; it is also compiled for these
        shapes alone. `passes` says how many tensors of the output's size the op and its gradient
        move. `forward` and `gradient` call the kernels.
        """
        torch._dynamo.reset()
        compiled = torch.compile(plain, dynamic=False)
        size = d_output.numel() * d_output.element_size()
        peers = {peer: plain, "torch.compile": compiled}
        makers = {
            name: functools.partial(functools.partial, call, *inputs)
            for name, call in peers.items()
        }
        self.row(f"{op} {what}", passes[0] * size, forward, makers)
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        peers = {"autograd": plain, "torch.compile": compiled}
        makers = {
            name: functools.partial(grad_of, call, leaves, d_output) for name, call in peers.items()
        }
        self.row(f"{op}, gradient {what}", passes[1] * size, gradient, makers)

    def bias_gelu(self, dtype, *shape):
        x, dy = (self.random(*shape, dtype=dtype) for _ in range(2))
        bias = self.random(shape[1], dtype=dtype)
        y, dbias = torch.empty_like(x), torch.empty_like(bias)
        inputs = (x, bias, *shape, False)
        outputs = (y, dbias, self.kernels.scratch("BiasGelu", *shape))
        self.rows(
            "bias_gelu",
            f"{list(shape)} {dtype}",
            "F.gelu(x + bias)",
            lambda x, bias: torch.nn.functional.gelu(x + bias),
            (x, bias),
            dy,
            (2, 3),
            lambda call: call("BiasGelu", dtype, *inputs, y),
            lambda call: call("BiasGeluGrad", dtype, dy, *inputs, *outputs),
        )

    def layer_norm(self, dtype, *shape):
        x, residual, dy = (self.random(*shape, dtype=dtype) for _ in range(3))
        bias, gamma, beta = (self.random(shape[1], dtype=dtype) for _ in range(3))
        out = self.kernels.layer_norm(x, residual, bias, gamma, beta, 0.0, None)
        moments = (out["mean"], out["rstd"])
        y, sums = torch.empty_like(x), [torch.empty_like(bias) for _ in range(3)]
        inputs = (x, residual, bias, gamma)
        scratch = self.kernels.scratch("ResidualLayerNorm", *shape)
        outputs = (y, None, *sums, scratch, False, None)

        def plain(x, residual, bias, gamma, beta):
            total = residual + (x + bias)
            return torch.nn.functional.layer_norm(total, gamma.shape, gamma, beta, eps=EPSILON)

        def forward(call):
            sizes = (*shape, EPSILON, 0.0, None)
            call("ResidualLayerNorm", dtype, *inputs, beta, *sizes, y, *moments)

        def gradient(call):
            sizes = (*shape, 0.0, None)
            call("ResidualLayerNormGrad", dtype, dy, *inputs, *moments, *sizes, *outputs)

        op, what, tensors = "residual_layer_norm", f"{list(shape)} {dtype}", (*inputs, beta)
        self.rows(op, what, "F.layer_norm", plain, tensors, dy, (3, 4), forward, gradient)

    def attention(self, dtype, lengths, heads=12, size=64):
        rows, longest = sum(lengths), max(lengths)
        qkv = self.random(rows, 3, heads, size, dtype=dtype)
        splits = torch.tensor([0, *lengths]).cumsum(0).to(qkv.device)
        options = (False, -1, 0, 0.0)
        outputs = tuple(self.kernels.attention(qkv, splits, options, None).values())
        d_output = torch.randn_like(outputs[0])
        scratch = self.kernels.scratch("VarlenAttention", rows, heads, len(lengths), 0)
        gradients = (torch.empty_like(qkv), None, scratch)
        padding = 1 - rows / len(lengths) / longest
        what = f"{len(lengths)} sequences, {rows} tokens, padding {padding:.0%} {dtype}"
        moved = rows * heads * size * qkv.element_size()
        inputs = (*attention_inputs(qkv, splits, options, None, None, None), *outputs)
        peers = attention_peers(qkv, lengths)
        self.row(
            f"varlen_attention {what}",
            4 * moved,
            lambda call: call("VarlenAttention", dtype, *inputs),
            {name: functools.partial(functools.partial, *peer) for name, peer in peers.items()},
        )
        self.row(
            f"varlen_attention, gradient {what}",
            8 * moved,
            lambda call: call("VarlenAttentionGrad", dtype, *inputs, d_output, *gradients),
            {name: functools.partial(grad_of, f, inputs) for name, (f, *inputs) in peers.items()},
        )

    def cases(self, rows=8192, dense=(512,) * 32, ragged=None):
        """Yields functions that measure a kernel and its gradient, the most important ones first.

        Args:
            rows: The number of rows of the matrices.
            dense: The lengths of sequences without padding.
            ragged: Other lengths. Default: 64 of 16 to 512.
        """
        if ragged is None:
            generator = torch.Generator().manual_seed(1)
            ragged = torch.randint(16, 513, (64,), generator=generator).tolist()
        for dtype in (torch.bfloat16, torch.float32):
            for lengths in (dense, ragged):
                yield functools.partial(self.attention, dtype, list(lengths))
            for columns in (768, 1024):
                yield functools.partial(self.layer_norm, dtype, rows, columns)
            for columns in (3072, 4096):
                yield functools.partial(self.bias_gelu, dtype, rows, columns)

    def all(self):
        print(f"copy bandwidth {self.bandwidth / 1e9:.0f} GB/s on {torch.cuda.get_device_name()}")
        for case in self.cases():
            case()


def print_times(what, share, times):
    """Prints the milliseconds by name, and the share of the copy bandwidth."""
    others = ", ".join(
        f"{name} {'failed' if value is None else f'{value:.3f}'}" for name, value in times.items()
    )
    print(f"{what}: {others} ms" + (f", {share:.0%} of the copy bandwidth" if share else ""))


def attention_peers(qkv, lengths):
    """Returns PyTorch's ways to compute attention: by name, the function and its inputs.

    cuDNN and the fastest kernel that PyTorch chooses get padded tensors `[B, N, T, D]`, and its
    attention for packed tokens gets `[R, N, D]`.
    """
    rows, _, heads, size = qkv.shape
    longest = max(lengths)

    def leaves(*shape):
        return [
            torch.randn(*shape, device=qkv.device).to(qkv.dtype).requires_grad_() for _ in "qkv"
        ]

    padded = leaves(len(lengths), heads, longest, size)
    mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).to(qkv.device)
    mask = None if all(length == longest for length in lengths) else mask[:, None, None, :]
    attend = functools.partial(torch.nn.functional.scaled_dot_product_attention, attn_mask=mask)

    def by_cudnn(*inputs):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            return attend(*inputs)

    def packed(*inputs):
        from torch.nn.attention.varlen import varlen_attn

        return varlen_attn(*inputs, splits, splits, longest, longest)

    splits = torch.tensor([0, *lengths]).cumsum(0).to(qkv.device, torch.int32)
    return {
        "padded SDPA": (attend, *padded),
        "cuDNN's SDPA": (by_cudnn, *padded),
        "varlen_attn": (packed, *leaves(rows, heads, size)),
    }


def grad_of(function, inputs, d_output=None):
    """Returns a function that computes only the gradient, for random numbers by default."""
    output = function(*inputs)
    if d_output is None:
        d_output = torch.randn_like(output)
    return lambda: torch.autograd.grad(output, inputs, d_output, retain_graph=True)
