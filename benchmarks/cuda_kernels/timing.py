"""Measures the CUDA kernels, for benchmarks/cuda_kernels.

A time is the median between two CUDA events. It is compared with the times of PyTorch's kernels and
of torch.compile, and with the time to move the same bytes at the copy bandwidth of the same run.
"""

import functools
import statistics

import torch
import torch._functorch.config

from .launchers import EPSILON, attention_inputs


class Timer:
    """Measures median times of many calls of `kernels`, and the copy bandwidth."""

    def __init__(self, kernels):
        self.kernels = kernels
        # With donated buffers, a compiled gradient frees what autograd saved and runs only once.
        torch._functorch.config.donated_buffer = False
        self.flush = torch.empty(2**28, dtype=torch.float32, device="cuda")
        self.bandwidth = 2**31 / self.copy_milliseconds(2**31) * 1e3  # bytes per second

    def copy_milliseconds(self, bytes_moved):
        """Returns the time of a copy that reads and writes as many bytes together."""
        source = torch.empty(bytes_moved // 2, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)
        return self.milliseconds(lambda: target.copy_(source))

    def milliseconds(self, function, calls=50):
        """Returns the median time of a call in milliseconds.

        Before each call the GPU writes 1 GiB. That empties its caches and keeps it busy while the
        host queues the call, so that the time does not include work of the host.
        """
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
        """Prints the time of a kernel, its share of the copy bandwidth, and the peers' times.

        A launch counts for much in a time this short, so a copy of as many bytes is measured too.
        """
        floor = bytes_moved / self.bandwidth * 1e3
        mine = self.milliseconds(ours)
        times = {"a copy": self.copy_milliseconds(bytes_moved)}
        times |= {name: self.milliseconds(call) for name, call in peers.items()}
        others = ", ".join(f"{name} {value:.3f}" for name, value in times.items())
        print(f"{what}: {mine:.3f} ms, {floor / mine:.0%} of the copy bandwidth; {others}")

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
        calls = {name: functools.partial(call, *inputs) for name, call in peers.items()}
        self.row(f"{op} {what}", passes[0] * size, forward, calls)
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        peers = {"autograd": plain, "torch.compile": compiled}
        calls = {name: grad_of(call, leaves, d_output) for name, call in peers.items()}
        self.row(f"its gradient {what}", passes[1] * size, gradient, calls)

    def bias_gelu(self, dtype, *shape):
        call = self.kernels.call
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
            lambda: call("BiasGelu", dtype, *inputs, y),
            lambda: call("BiasGeluGrad", dtype, dy, *inputs, *outputs),
        )

    def layer_norm(self, dtype, *shape):
        call = self.kernels.call
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

        def forward():
            sizes = (*shape, EPSILON, 0.0, None)
            call("ResidualLayerNorm", dtype, *inputs, beta, *sizes, y, *moments)

        def gradient():
            sizes = (*shape, 0.0, None)
            call("ResidualLayerNormGrad", dtype, dy, *inputs, *moments, *sizes, *outputs)

        op, what, tensors = "residual_layer_norm", f"{list(shape)} {dtype}", (*inputs, beta)
        self.rows(op, what, "F.layer_norm", plain, tensors, dy, (3, 4), forward, gradient)

    def attention(self, dtype, lengths, heads=12, size=64):
        call = self.kernels.call
        rows, longest = sum(lengths), max(lengths)
        qkv = self.random(rows, 3, heads, size, dtype=dtype)
        splits = torch.tensor([0, *lengths]).cumsum(0).to(qkv.device)
        options = (False, -1, 0, 0.0)
        outputs = tuple(self.kernels.attention(qkv, splits, options, None).values())
        d_output = torch.randn_like(outputs[0])
        scratch = self.kernels.scratch("VarlenAttention", rows, heads, len(lengths), 0)
        gradients = (torch.empty_like(qkv), None, scratch)
        shape = (len(lengths), heads, longest, size)
        padded = [self.random(*shape, dtype=dtype).requires_grad_() for _ in range(3)]
        mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).to(qkv.device)
        mask = None if all(length == longest for length in lengths) else mask[:, None, None, :]
        attention = torch.nn.functional.scaled_dot_product_attention
        sdpa = functools.partial(attention, attn_mask=mask)
        padding = 1 - rows / len(lengths) / longest
        what = f"{len(lengths)} sequences, {rows} tokens, padding {padding:.0%} {dtype}"
        moved = rows * heads * size * qkv.element_size()
        inputs = (*attention_inputs(qkv, splits, options, None, None, None), *outputs)
        self.row(
            f"varlen_attention {what}",
            4 * moved,
            lambda: call("VarlenAttention", dtype, *inputs),
            {"padded SDPA": lambda: sdpa(*padded)},
        )
        self.row(
            f"its gradient {what}",
            8 * moved,
            lambda: call("VarlenAttentionGrad", dtype, *inputs, d_output, *gradients),
            {"padded SDPA": grad_of(sdpa, padded, torch.randn_like(padded[0]))},
        )

    def all(self):
        print(f"copy bandwidth {self.bandwidth / 1e9:.0f} GB/s on {torch.cuda.get_device_name()}")
        lengths = torch.randint(16, 513, (64,), generator=torch.Generator().manual_seed(1)).tolist()
        for dtype in (torch.bfloat16, torch.float32):
            for columns in (3072, 4096):
                self.bias_gelu(dtype, 8192, columns)
            for columns in (768, 1024):
                self.layer_norm(dtype, 8192, columns)
            self.attention(dtype, [512] * 32)
            self.attention(dtype, lengths)


def grad_of(function, inputs, d_output):
    """Returns a function that computes only the gradient."""
    output = function(*inputs)
    return lambda: torch.autograd.grad(output, inputs, d_output, retain_graph=True)
