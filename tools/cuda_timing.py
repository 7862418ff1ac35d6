"""Measures the CUDA kernels, for tools/check_cuda_kernels.py.

A time is the median between two CUDA events. It is compared with the times of PyTorch's kernels and
of torch.compile, and with the time to move the same bytes at the copy bandwidth of the same run.
"""

import functools
import statistics


class Timer:
    """Measures median times of many calls, and the copy bandwidth.

    Args:
        kernels: The `Kernels` of check_cuda_kernels.py.
        epsilon: The epsilon of LayerNorm.
    """

    def __init__(self, kernels, epsilon):
        self.kernels = kernels
        self.epsilon = epsilon
        self.torch = kernels.torch
        # With donated buffers, a compiled gradient frees what autograd saved and runs only once.
        self.torch._functorch.config.donated_buffer = False
        self.flush = self.torch.empty(2**28, dtype=self.torch.float32, device="cuda")
        source = self.torch.empty(2**28, dtype=self.torch.float32, device="cuda")
        target = self.torch.empty_like(source)
        milliseconds = self.milliseconds(lambda: target.copy_(source))
        self.bandwidth = 2 * source.numel() * 4 / milliseconds * 1e3  # bytes per second

    def milliseconds(self, function, calls=50):
        """Returns the median time of a call in milliseconds.

        Before each call the GPU writes 1 GiB. That empties its caches and keeps it busy while the
        host queues the call, so that the time does not include work of the host.
        """
        torch = self.torch
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

    def compile(self, function):
        """Compiles a function for the shapes of its next call, without those of earlier ones."""
        self.torch._dynamo.reset()
        return self.torch.compile(function, dynamic=False)

    def row(self, what, bytes_moved, ours, peers):
        """Prints the time of a kernel, its share of the copy bandwidth, and the peers' times."""
        floor = bytes_moved / self.bandwidth * 1e3
        mine = self.milliseconds(ours)
        theirs = ", ".join(f"{name} {self.milliseconds(call):.3f}" for name, call in peers.items())
        print(f"{what}: {mine:.3f} ms, {floor / mine:.0%} of the copy bandwidth; {theirs}")

    def grad_of(self, function, inputs, d_output):
        """Returns a function that computes only the gradient."""
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

            def plain(x, bias):
                return functional.gelu(x + bias)

            compiled = self.compile(plain)
            size = x.numel() * x.element_size()
            self.row(
                f"bias_gelu {[rows, columns]} {dtype}",
                2 * size,
                lambda: kernels.call("BiasGelu", dtype, x, bias, rows, columns, False, y),
                {
                    "F.gelu(x + bias)": lambda: plain(x, bias),
                    "torch.compile": lambda: compiled(x, bias),
                },
            )
            self.row(
                f"its gradient {[rows, columns]} {dtype}",
                3 * size,
                lambda: kernels.call(
                    "BiasGeluGrad", dtype, dy, x, bias, rows, columns, False, y, dbias, scratch
                ),
                {
                    "autograd": self.grad_of(plain, leaves, dy),
                    "torch.compile": self.grad_of(compiled, leaves, dy),
                },
            )
        for rows, columns in ((8192, 768), (8192, 1024)):
            x, residual, dy = (
                torch.randn(rows, columns, device="cuda").to(dtype) for _ in range(3)
            )
            bias, gamma, beta = (torch.randn(columns, device="cuda").to(dtype) for _ in range(3))
            out = kernels.layer_norm(x, residual, bias, gamma, beta, 0.0, None)
            y, (dbias, dgamma, dbeta) = (
                torch.empty_like(x),
                (torch.empty_like(bias) for _ in range(3)),
            )
            scratch = kernels.scratch("ResidualLayerNorm", rows, columns)
            leaves = [leaf.clone().requires_grad_() for leaf in (x, residual, bias, gamma, beta)]

            def plain(x, residual, bias, gamma, beta):
                total = residual + (x + bias)
                return functional.layer_norm(total, (columns,), gamma, beta, eps=self.epsilon)

            compiled = self.compile(plain)
            size = x.numel() * x.element_size()
            self.row(
                f"residual_layer_norm {[rows, columns]} {dtype}",
                3 * size,
                lambda: kernels.call(
                    "ResidualLayerNorm",
                    dtype,
                    x,
                    residual,
                    bias,
                    gamma,
                    beta,
                    rows,
                    columns,
                    self.epsilon,
                    0.0,
                    None,
                    y,
                    out["mean"],
                    out["rstd"],
                ),
                {
                    "F.layer_norm": lambda: plain(x, residual, bias, gamma, beta),
                    "torch.compile": lambda: compiled(x, residual, bias, gamma, beta),
                },
            )
            self.row(
                f"its gradient {[rows, columns]} {dtype}",
                4 * size,
                lambda: kernels.call(
                    "ResidualLayerNormGrad",
                    dtype,
                    dy,
                    x,
                    residual,
                    bias,
                    gamma,
                    out["mean"],
                    out["rstd"],
                    rows,
                    columns,
                    0.0,
                    None,
                    y,
                    None,
                    dbias,
                    dgamma,
                    dbeta,
                    scratch,
                ),
                {
                    "autograd": self.grad_of(plain, leaves, dy),
                    "torch.compile": self.grad_of(compiled, leaves, dy),
                },
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
        padded = [
            torch.randn(len(lengths), heads, longest, size, device="cuda")
            .to(dtype)
            .requires_grad_()
            for _ in range(3)
        ]
        mask = (torch.arange(longest)[None, :] < torch.tensor(lengths)[:, None]).cuda()
        mask = None if all(length == longest for length in lengths) else mask[:, None, None, :]
        attention = torch.nn.functional.scaled_dot_product_attention
        sdpa = functools.partial(attention, attn_mask=mask)
        padding = 1 - rows / len(lengths) / longest
        shape = f"{len(lengths)} sequences, {rows} tokens, padding {padding:.0%}"
        moved = rows * heads * size * qkv.element_size()
        common = (splits, True, len(lengths), rows, heads, size, *options, None)
        self.row(
            f"varlen_attention {shape} {dtype}",
            4 * moved,
            lambda: kernels.call(
                "VarlenAttention", dtype, qkv, *common, out["output"], out["logsumexp"]
            ),
            {"padded SDPA": lambda: sdpa(*padded)},
        )
        self.row(
            f"its gradient {shape} {dtype}",
            8 * moved,
            lambda: kernels.call(
                "VarlenAttentionGrad",
                dtype,
                d_output,
                qkv,
                out["output"],
                out["logsumexp"],
                *common,
                d_qkv,
                scratch,
            ),
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
