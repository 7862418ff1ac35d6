"""Compares outputs of the CUDA kernels with float64 and with each other, and counts failures."""

import torch

from .launchers import tail

SEED = 0x123456789ABCDEF0


class Checker:
    """Compares outputs of `kernels`, prints the failures and counts them."""

    def __init__(self, kernels, repeats=5):
        self.kernels = kernels
        self.repeats = repeats  # a data race rarely shows in a single run
        self.checks = 0
        self.failed = []
        self.worst = {}
        self.seed = torch.tensor(SEED, dtype=torch.int64, device=kernels.device)

    @property
    def failures(self):
        return len(self.failed)

    def random(self, *shape, dtype, scale=1.0, mean=0.0):
        numbers = torch.randn(*shape, device=self.kernels.device) * scale + mean
        return self.kernels.nan(*shape, dtype=dtype).copy_(numbers)

    def run(self, kernel, *arguments):
        """Returns the kernel's outputs; a repetition with other bits is a failure."""
        outputs = kernel(*arguments)
        for name, tensor in outputs.items():
            self.count(tail(tensor).isnan().all(), f"{name}: numbers after its end were written")
        for _ in range(self.repeats - 1):
            self.same_bits(outputs, kernel(*arguments), "another run")
        return outputs

    def in_place(self, kernel, *arguments, **places):
        """Checks a call that overwrites arguments: by the outputs' names, their places."""
        given = {name: arguments[place].clone() for name, place in places.items()}
        overwritten = dict(enumerate(arguments)) | {places[name]: given[name] for name in given}
        outputs = kernel(*arguments)
        self.same_bits(outputs, kernel(*overwritten.values(), **given), "a call in place")

    def recorded(self, kernel, *arguments):
        """Checks that a CUDA graph of the call, such as XLA may make, gives the same outputs."""
        outputs = kernel(*arguments)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again = kernel(*arguments)
        for _ in range(2):
            graph.replay()
            torch.cuda.synchronize()
            self.same_bits(outputs, again, "a recorded call")

    def same_bits(self, outputs, again, what):
        for name, tensor in outputs.items():
            same = torch.equal(tensor.view(torch.uint8), again[name].view(torch.uint8))
            self.count(same, f"{name}: {what} gave other bits")

    def near(self, op, what, actual, expected, roundings=1.0, scale=1.0):
        """Checks for errors of few roundings of the dtype, relative to max(`scale`, largest value).

        `scale` is that of the terms of a sum that may cancel.
        """
        eps = torch.finfo(actual.dtype).eps
        tolerance = 1e-5 + roundings * eps
        if actual.numel() == 0:
            return
        scale = max(scale, expected.abs().max().item())
        error = (actual.double() - expected).abs().max().item() / scale
        key = (op, str(actual.dtype).removeprefix("torch."))
        self.worst[key] = max(self.worst.get(key, 0.0), error)
        self.count(error <= tolerance, f"{op} {what}: error {error:.2e} over {tolerance:.2e}")

    def near_each(self, what, actual, expected, slack=0.0):
        """Checks that every value is within one rounding relative to itself, plus `slack`."""
        info = torch.finfo(actual.dtype)
        # float32 flushes subnormal values to zero; 16-bit types are rounded from float32.
        tiny = max(torch.finfo(torch.float32).tiny, info.smallest_normal * info.eps)
        error = (actual.double() - expected).abs()
        excess = error - (1e-5 + info.eps) * expected.abs() - slack - tiny
        worst = excess.max().item() if excess.numel() else 0.0
        self.count(worst <= 0.0, f"{what}: an error is {worst:.2e} above its tolerance")

    def count(self, ok, what):
        self.checks += 1
        if not ok:
            self.failed.append(what)
            print(f"FAILED {what}")

    def report(self):
        """Prints the worst errors and the counts."""
        for (op, dtype), error in sorted(self.worst.items()):
            print(f"{op} {dtype}: worst error {error:.1e}, relative to the largest value")
        print(f"{self.checks} checks, {self.failures} failures")
