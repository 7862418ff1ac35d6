"""PyTorch through torch.compile: inference with frozen (prepacked) weights, and training."""

import functools

import torch

from .base import Task
from .pytorch import PyTorch

# Above this a bucket size makes few enough shapes to compile each of them.
_SMALLEST_STATIC_BUCKET = 8
_MOST_SHAPES = 64


class _OpTask(Task):
    def __init__(self, function, arguments):
        self._function = function
        self._arguments = arguments

    def run(self):
        return self._function(*self._arguments)

    def outputs(self):
        results = self._function(*self._arguments)
        results = results if isinstance(results, tuple) else (results,)
        return {str(index): value.numpy().copy() for index, value in enumerate(results)}


class TorchCompile(PyTorch):
    """"static" compiles every shape by itself, "dynamic" once for all shapes."""

    def __init__(self, setup):
        super().__init__(setup)
        torch._dynamo.config.recompile_limit = _MOST_SHAPES
        torch._dynamo.config.accumulated_recompile_limit = _MOST_SHAPES * 4

    def variants(self, job, bucket, is_ragged):
        if job == "ops":
            return ("fresh", "in place")
        if not is_ragged:
            return ("static",)
        if job == "training":  # a compiled step takes minutes a shape
            return ("dynamic",)
        few_shapes = bucket is None or bucket >= _SMALLEST_STATIC_BUCKET
        return ("dynamic", "static") if few_shapes else ("dynamic",)

    @functools.cached_property
    def _compiled_inference(self):
        eager = super()._inference_model(None)
        return {
            variant: torch.compile(
                eager, dynamic=variant == "dynamic", options={"freezing": True}
            )
            for variant in ("dynamic", "static")
        }

    def _inference_model(self, variant):
        return self._compiled_inference[variant]

    @functools.cached_property
    def _compiled_training(self):
        return {
            variant: torch.compile(self.pretrainer, dynamic=variant == "dynamic")
            for variant in ("dynamic", "static")
        }

    def _training_loss(self, variant):
        return self._compiled_training[variant]

    def ops(self, case, variant):
        """Compiled as one loop; "in place" writes over an input, as a graph of ours does."""
        t = {name: torch.from_numpy(value) for name, value in case.inputs().items()}
        in_place = variant == "in place"
        if (case.op, case.direction) == ("fused_bias_gelu", "forward"):
            function, arguments = _gelu, (t["x"], t["bias"])
        elif case.op == "fused_bias_gelu":
            function, arguments = _gelu_backward, (t["dy"], t["x"], t["bias"])
        elif case.direction == "forward":
            function = _layer_norm
            arguments = (t["x"], t["residual"], t["bias"], t["gamma"], t["beta"])
        else:
            # Autograd would have kept the sum and its statistics: they are inputs.
            summed = t["x"] + t["bias"] + t["residual"]
            function = _layer_norm_backward
            arguments = (t["dy"], summed, t["mean"][:, None], t["rstd"][:, None], t["gamma"],
                         t["beta"])
        compiled = torch.compile(functools.partial(function, in_place), dynamic=False)
        # Outputs are compared from an untouched copy: "in place" eats its input.
        return _OpTask(compiled, tuple(argument.clone() for argument in arguments))


def _gelu(in_place, x, bias):
    y = torch.nn.functional.gelu(x + bias)
    return x.copy_(y) if in_place else y


def _gelu_backward(in_place, dy, x, bias):
    dx = torch.ops.aten.gelu_backward(dy, x + bias)
    dbias = dx.sum(0)
    return (dy.copy_(dx) if in_place else dx), dbias


def _layer_norm(in_place, x, residual, bias, gamma, beta):
    y = torch.nn.functional.layer_norm(x + bias + residual, x.shape[-1:], gamma, beta, 1e-12)
    return x.copy_(y) if in_place else y


def _layer_norm_backward(in_place, dy, summed, mean, rstd, gamma, beta):
    dx, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
        dy, summed, summed.shape[-1:], mean, rstd, gamma, beta, [True, True, True]
    )
    dbias = dx.sum(0)
    return (dy.copy_(dx) if in_place else dx), dbias, dgamma, dbeta
