"""The kernels of a program that XLA compiled for a GPU, read from the text of its HLO."""

import collections
import dataclasses
import re

_BYTES = {
    "pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
    "u64": 8, "f64": 8,
}  # fmt: skip
_WITHOUT_KERNEL = (
    "parameter", "constant", "get-tuple-element", "tuple", "bitcast", "after-all", "replica-id",
    "all-reduce-done",
)  # fmt: skip
_ALL_REDUCE = "all-reduce"
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")


def bandwidth(target: str) -> float:
    """Returns the bytes per second of the memory of XLA's description of a GPU."""
    return float(re.search(r"memory_bandwidth: (\d+)", target)[1])


def size(shape: str) -> int:
    """Returns the bytes of a shape such as `f32[2,3]{1,0}`, or of a tuple of them."""
    total = 0
    for dtype, dimensions in re.findall(r"(\w+)\[([\d,]*)\]", shape):
        count = 1
        for dimension in filter(None, dimensions.split(",")):
            count *= int(dimension)
        total += _BYTES.get(dtype, 0) * count
    return total


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A launch: `kind` is its sort, `bytes` are those of its operands and results."""

    kind: str
    bytes: int
    dtypes: tuple[str, ...]

    @property
    def is_matmul(self) -> bool:
        return "matmul" in self.kind


@dataclasses.dataclass(frozen=True)
class Program:
    kernels: tuple[Kernel, ...]

    @classmethod
    def parse(cls, text: str) -> "Program":
        start = text.index("ENTRY ")
        bodies = {
            found[1]: found[2]
            for found in re.finditer(r"\n%?([\w.\-]+) \([^\n]*\{\n(.*?)\n\}", text, re.S)
        }
        shapes, kernels = {}, []
        for line in text[start : text.index("\n}", start)].split("\n")[1:]:
            found = _INSTRUCTION.match(line)
            if not found:
                continue
            name, shape, operation, rest = found.groups()
            shapes[name] = shape
            if operation in _WITHOUT_KERNEL:
                continue
            operands = re.findall(r"%([\w.\-]+)", rest.split("), ")[0])
            parts = [shape, *(shapes[operand] for operand in operands if operand in shapes)]
            dtypes = [re.search(r"(\w+)\[", part)[1] for part in parts if "[" in part]
            kernels.append(
                Kernel(_kind(operation, line, bodies), sum(map(size, parts)), tuple(dtypes))
            )
        return cls(tuple(kernels))

    def summary(self, bytes_per_second: float) -> dict:
        """Returns the counts, the bytes outside matrix multiplications, and dtypes."""
        matmuls = [kernel for kernel in self.kernels if kernel.is_matmul]
        sums = [kernel for kernel in self.kernels if kernel.kind == _ALL_REDUCE]
        moved = sum(kernel.bytes for kernel in self.kernels) - sum(
            kernel.bytes for kernel in (*matmuls, *sums)
        )
        sent = collections.Counter()  # an all-reduce has as many bytes of operands as of results
        for kernel in sums:
            sent[kernel.dtypes[0]] += kernel.bytes // 2
        return {
            "kernels": len(self.kernels),
            "kinds": dict(collections.Counter(k.kind for k in self.kernels).most_common()),
            "gigabytes outside matrix multiplications": round(moved / 1e9, 2),
            "floor of these in ms": round(1e3 * moved / bytes_per_second, 2),
            "all-reduces": dict(collections.Counter(kernel.dtypes[0] for kernel in sums)),
            "bytes of all-reduces": dict(sent),
            "matrix multiplications": dict(
                collections.Counter(
                    f"{kernel.dtypes[1]} -> {kernel.dtypes[0]}" for kernel in matmuls
                ).most_common()
            ),
        }


def _kind(operation, line, bodies):
    if operation == "custom-call":
        target = re.search(r'custom_call_target="([^"]*)"', line)[1]
        return "matmul" if "cublas" in target else target
    if operation != "fusion":
        return operation.removesuffix("-start")
    called = re.search(r"calls=%?([\w.\-]+)", line)
    body = bodies.get(called[1], "") if called else ""
    if " dot(" in body or "__triton_gemm" in line:
        return "matmul of Triton"
    for part in ("scatter", "reduce", "transpose"):
        if f" {part}(" in body:
            return f"fusion with {part}"
    return "fusion"
