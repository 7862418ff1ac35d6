"""The peer torch.compile: inference with PyTorch's freezing (prepacked weights), and training."""

import functools

import torch

from .base import Task
from .op_cases import EPSILON
from .pytorch import PyTorch

# With batches of at least this size there are few shapes, so each of them can be compiled.
_SMALLEST_STATIC_BUCKET = 8
_MOST_SHAPES = 64


class TorchCompile(PyTorch):
    """PyTorch with torch.compile; "static" compiles every shape, "dynamic" all shapes at once."""

    INFERENCE = {"options": {"freezing": True}}  # arguments of torch.compile

    def __init__(self, setup):
        super().__init__(setup)
        torch._dynamo.config.recompile_limit = _MOST_SHAPES
        torch._dynamo.config.accumulated_recompile_limit = _MOST_SHAPES * 4

    def variants(self, job, bucket, is_ragged):
        if job == "ops":
            return ("fresh", "out buffer")
        if not is_ragged:
            shapes = ("static",)
        elif job.startswith("training"):  # compiling a step takes minutes per shape
            shapes = ("dynamic",)
        else:
            few_shapes = bucket is None or bucket >= _SMALLEST_STATIC_BUCKET
            shapes = ("dynamic", "static") if few_shapes else ("dynamic",)
        if not job.endswith("_bfloat16"):
            return shapes
        precisions = self.VARIANTS[job]
        return tuple(f"{precision}, {shape}" for precision in precisions for shape in shapes)

    @functools.cache
    def _inference_model(self, variant):
        eager = super()._inference_model(variant)
        return torch.compile(eager, dynamic="dynamic" in variant, **self.INFERENCE)

    @functools.cache
    def _training_loss(self, variant):
        return torch.compile(self.pretrainer, dynamic="dynamic" in variant)

    def ops(self, case, variant):
        """Creates a task with a compiled op; "out buffer" writes to existing memory."""
        t = {name: torch.from_numpy(value) for name, value in case.inputs().items()}
        if (case.op, case.direction) == ("fused_bias_gelu", "forward"):
            function, arguments = _gelu, (t["x"], t["bias"])
        elif case.op == "fused_bias_gelu":
            function, arguments = _gelu_backward, (t["dy"], t["x"], t["bias"])
        elif case.direction == "forward":
            function = _layer_norm
            arguments = (t["x"], t["residual"], t["bias"], t["gamma"], t["beta"])
        else:
            # Autograd would have saved the sum and its statistics, so they are inputs here.
            summed = t["x"] + t["bias"] + t["residual"]
            function = _layer_norm_backward
            mean, rstd = t["mean"][:, None], t["rstd"][:, None]
            arguments = (t["dy"], summed, mean, rstd, t["gamma"], t["beta"])
        out = torch.empty_like(t["x"]) if variant == "out buffer" else None
        run = functools.partial(torch.compile(function, dynamic=False), out, *arguments)

        def outputs():
            results = run()
            results = results if isinstance(results, tuple) else (results,)
            return {str(index): value.numpy().copy() for index, value in enumerate(results)}

        return Task(run, outputs)


def _gelu(out, x, bias):
    return _given(out, torch.nn.functional.gelu(x + bias))


def _gelu_backward(out, dy, x, bias):
    dx = torch.ops.aten.gelu_backward(dy, x + bias)
    return _given(out, dx), dx.sum(0)


def _layer_norm(out, x, residual, bias, gamma, beta):
    summed = x + bias + residual
    return _given(out, torch.nn.functional.layer_norm(summed, x.shape[-1:], gamma, beta, EPSILON))


def _layer_norm_backward(out, dy, summed, mean, rstd, gamma, beta):
    dx, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
        dy, summed, summed.shape[-1:], mean, rstd, gamma, beta, [True, True, True]
    )
    return _given(out, dx), dx.sum(0), dgamma, dbeta


def _given(out, value):
    return value if out is None else out.copy_(value)
