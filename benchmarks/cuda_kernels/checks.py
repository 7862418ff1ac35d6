"""What each CUDA kernel and its gradient must compute, for several dtypes and shapes."""

import functools

import torch

from . import references
from .checker import SEED, Checker
from .launchers import ACTIVATIONS, TYPES, Kernels


def bias_gelu(checker, rows, columns, dtype, approximate):
    kernels, op = checker.kernels, "fused_bias_gelu"
    x = checker.random(rows, columns, dtype=dtype, scale=3.0)
    bias = checker.random(columns, dtype=dtype)
    dy = checker.random(rows, columns, dtype=dtype)
    # The kernels add in float32.
    s64 = (x.float() + bias.float()).double().requires_grad_()
    y64 = references.gelu(s64, approximate)
    y64.backward(dy.double())
    context = f"{[rows, columns]} {dtype} {'tanh' if approximate else 'erf'}"
    y = checker.run(kernels.bias_gelu, x, bias, approximate)["y"]
    checker.near(op, f"y {context}", y, y64.detach())
    # The kernels multiply s by a float32, which may be flushed to zero.
    slack = torch.finfo(torch.float32).tiny * s64.detach().abs()
    checker.near_each(f"{op} y {context}", y, y64.detach(), slack)
    grads = checker.run(kernels.bias_gelu_grad, dy, x, bias, approximate)
    checker.near(op, f"dx {context}", grads["dx"], s64.grad)
    # Where the slope crosses zero, its error is one rounding of 1 in float32.
    slack = 1e-6 * dy.double().abs()
    checker.near_each(f"{op} dx {context}", grads["dx"], s64.grad, slack)
    checker.near(op, f"dbias {context}", grads["dbias"], s64.grad.sum(0))


def gate(checker, rows, columns, dtype, activation):
    kernels, op = checker.kernels, "fused_gate"
    x = checker.random(rows, 2 * columns, dtype=dtype, scale=3.0)
    dy = checker.random(rows, columns, dtype=dtype)
    x64 = x.double().requires_grad_()
    y64 = references.gate(x64, activation)
    y64.backward(dy.double())
    context = f"{[rows, columns]} {dtype} {activation}"
    y = checker.run(kernels.gate, x, activation)["y"]
    checker.near(op, f"y {context}", y, y64.detach())
    # The kernels multiply x by float32 numbers, which may be flushed to zero.
    tiny = torch.finfo(torch.float32).tiny
    factor = x64.detach()[:, columns:].abs()
    slack = tiny * (1.0 + x64.detach()[:, :columns].abs()) * factor
    checker.near_each(f"{op} y {context}", y, y64.detach(), slack)
    dx = checker.run(kernels.gate, x, activation, dy)["dx"]
    checker.near(op, f"dx {context}", dx, x64.grad)
    # Where the slope crosses zero, its error is one rounding of 1 in float32.
    slack = 1e-6 * dy.double().abs() * factor
    checker.near_each(f"{op} ds {context}", dx[:, :columns], x64.grad[:, :columns], slack)


def layer_norm(checker, rows, columns, dtype, rate, has_residual, has_bias):
    kernels, op = checker.kernels, "fused_residual_layer_norm"
    x, dy = (checker.random(rows, columns, dtype=dtype) for _ in range(2))
    residual = checker.random(rows, columns, dtype=dtype) if has_residual else None
    bias = checker.random(columns, dtype=dtype) if has_bias else None
    gamma, beta = (checker.random(columns, dtype=dtype, mean=mean) for mean in (1.0, 0.0))
    inputs = {"x": x, "residual": residual, "bias": bias, "gamma": gamma, "beta": beta}
    wide = {
        name: None if tensor is None else tensor.double().requires_grad_()
        for name, tensor in inputs.items()
    }
    y64 = references.layer_norm(**wide, rate=rate, seed=SEED)
    other_dy = checker.random(rows, columns, dtype=dtype) if has_residual else None
    y64.backward((dy if other_dy is None else dy + other_dy).double())
    context = f"{[rows, columns]} {dtype} rate={rate} residual={has_residual} bias={has_bias}"
    outputs = checker.run(kernels.layer_norm, *inputs.values(), rate, checker.seed)
    checker.near(op, f"y {context}", outputs["y"], y64.detach())
    statistics = (outputs["mean"], outputs["rstd"])
    inputs.pop("beta")
    rest = (*statistics, rate, checker.seed, other_dy)
    grads = checker.run(kernels.layer_norm_grad, dy, *inputs.values(), *rest)
    for name, tensor in grads.items():
        checker.near(op, f"{name} {context}", tensor, wide[name.removeprefix("d")].grad)


def attention(
    checker,
    lengths,
    heads,
    size,
    dtype,
    causal=False,
    window=-1,
    globals_=0,
    rate=0.0,
    splits_type=torch.int64,
    max_distance=None,
    turned=0,
):
    kernels, op = checker.kernels, "varlen_attention"
    qkv = checker.random(sum(lengths), 3, heads, size, dtype=dtype)
    d_output = checker.random(sum(lengths), heads, size, dtype=dtype)
    splits = torch.tensor([0, *lengths]).cumsum(0).to(kernels.device, splits_type)
    options = (causal, window, globals_, rate)
    qkv64 = qkv.double().requires_grad_()
    bias, bias64 = None, None
    if max_distance is not None:
        bias = checker.random(heads, 2 * max_distance + 1, dtype=torch.float32)
        bias64 = bias.double().requires_grad_()
    rotation, rotation64 = None, None
    if turned:
        rotation = checker.random(max(lengths), turned, dtype=torch.float32)
        rotation64 = rotation.double()
    output64, logsumexp64 = references.attention(
        qkv64, lengths, *options, SEED, bias64, rotation64, dtype
    )
    output64.backward(d_output.double(), retain_graph=bias is not None)
    context = f"{lengths} N={heads} D={size} {dtype} {options} M={max_distance} S={turned}"
    inputs = (splits, options, checker.seed, bias, rotation)
    outputs = checker.run(kernels.attention, qkv, *inputs)
    checker.near(op, f"output {context}", outputs["output"], output64.detach(), 2)
    checker.near(op, f"logsumexp {context}", outputs["logsumexp"], logsumexp64.detach(), 2)
    grads = checker.run(kernels.attention_grad, d_output, qkv, *outputs.values(), *inputs)
    checker.near(op, f"d_qkv {context}", grads["d_qkv"], qkv64.grad, 4)
    if bias is not None:
        expected, scale = distance_bias_gradient(
            bias64, d_output.double(), outputs["output"].double(), output64, logsumexp64
        )
        found = grads["d_distance_bias"]
        checker.near(op, f"d_distance_bias {context}", found, expected, 4, scale)


def distance_bias_gradient(bias64, d_output, output, output64, logsumexp64):
    """Returns the gradient `[N, 2 M + 1]` from the rounded `output` and the size of its terms.

    Every kernel takes the sum over D of d_output · output from its output in 16 bits. A row's error
    there is multiplied by its probabilities, which are the gradient of its log-sum-exp.
    """

    def weighted_probabilities(weights):  # [R, N] -> [N, 2 M + 1]
        total = (logsumexp64 * weights).sum()
        return torch.autograd.grad(total, bias64, retain_graph=True)[0]

    error = (d_output * (output - output64.detach())).sum(-1)  # [R, N]
    terms = weighted_probabilities((d_output * output64.detach()).sum(-1).abs())
    return bias64.grad - weighted_probabilities(error), terms.max().item()


def fused_calls(checker, dtype):
    """Yields a call of each fused op and gradient, and by name the outputs that may be in place."""
    kernels, seed = checker.kernels, checker.seed
    x, residual, dy = (checker.random(300, 768, dtype=dtype) for _ in range(3))
    bias, gamma, beta = (checker.random(768, dtype=dtype) for _ in range(3))
    yield (kernels.bias_gelu, x, bias, False), {"y": 0}
    yield (kernels.bias_gelu_grad, dy, x, bias, False), {"dx": 0}
    yield (kernels.gate, x, "silu"), {}
    yield (kernels.gate, x, "silu", dy[:, :384].contiguous()), {"dx": 0}
    inputs = (x, residual, bias, gamma)
    out = kernels.layer_norm(*inputs, beta, 0.1, seed)
    yield (kernels.layer_norm, *inputs, beta, 0.1, seed), {"y": 0}
    inputs = (dy, *inputs, out["mean"], out["rstd"], 0.1, seed)
    yield (kernels.layer_norm_grad, *inputs), {"dx": 0, "dresidual": 1}


def in_place(checker, dtype):
    """Checks calls in place, as TensorFlow makes them: y in x, dx in dy or x, dresidual in x."""
    for call, places in fused_calls(checker, dtype):
        checker.in_place(*call, **places)


def recorded(checker, dtype):
    """Checks that all kernels can be recorded in a CUDA graph."""
    for call, _ in fused_calls(checker, dtype):
        checker.recorded(*call)
    kernels = checker.kernels
    qkv, d_output = (checker.random(300, *shape, dtype=dtype) for shape in ((3, 4, 64), (4, 64)))
    splits = torch.tensor([0, 100, 300], device=kernels.device)
    options = (splits, (False, -1, 0, 0.1), checker.seed)
    out = kernels.attention(qkv, *options)
    checker.recorded(kernels.attention, qkv, *options)
    checker.recorded(kernels.attention_grad, d_output, qkv, *out.values(), *options)


def check_kernels(library) -> Checker:
    """Checks all kernels of a `ctypes.CDLL` on the GPU."""
    checker = Checker(Kernels(library))
    torch.manual_seed(1)
    for case in cases(checker, TYPES):
        case()
    return checker


def cases(checker, dtypes):
    """Yields functions, each of which checks a kernel and its gradient."""
    for dtype in dtypes:
        if checker.kernels.device == "cuda":
            yield functools.partial(recorded, checker, dtype)
        for call in _cases_of_dtype(dtype):
            yield functools.partial(call.func, checker, *call.args, **call.keywords)


def _cases_of_dtype(dtype):
    check = functools.partial
    yield check(in_place, dtype)
    for approximate in (False, True):
        for rows, columns in ((1, 1), (7, 3), (33, 257), (1000, 768), (8192, 3072), (0, 8)):
            yield check(bias_gelu, rows, columns, dtype, approximate)
    for activation in ACTIVATIONS:
        for rows, columns in ((1, 1), (7, 3), (33, 257), (1000, 1152), (4096, 3072), (0, 8)):
            yield check(gate, rows, columns, dtype, activation)
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
                yield check(layer_norm, rows, columns, dtype, rate, has_residual, not has_residual)
            yield check(layer_norm, rows, columns, dtype, rate, True, True)
    for size in (5, 8, 32, 40, 64):
        yield check(attention, [3, 0, 1, 64, 65, 200], 2, size, dtype)
        options = {"causal": True, "rate": 0.1, "splits_type": torch.int32}
        yield check(attention, [70, 1], 3, size, dtype, **options)
    for window, globals_ in ((0, 0), (5, 2), (64, 0), (100, 70)):
        for causal in (False, True):
            yield check(attention, [300, 67], 2, 64, dtype, causal, window, globals_, 0.1)
    yield check(attention, [512] * 4 + [17, 129], 12, 64, dtype)
    for reach in (0, 5, 128, 1000):
        yield check(attention, [3, 0, 1, 64, 300], 2, 64, dtype, rate=0.1, max_distance=reach)
        yield check(attention, [200, 67], 3, 40, dtype, True, 20, 2, max_distance=reach)
    for size, turned in ((64, 64), (64, 20), (32, 32), (5, 4)):
        yield check(attention, [3, 0, 1, 64, 300], 2, size, dtype, rate=0.1, turned=turned)
        yield check(attention, [200, 67], 3, size, dtype, True, 20, 2, turned=turned)
