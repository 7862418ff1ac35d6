"""Counts the instructions that a thread executes for one tile of attention, in the machine code.

    python -m benchmarks.cuda_kernels.machine_code
    python -m benchmarks.cuda_kernels.machine_code --architecture=sm_80

Needs what build.py needs and nvdisasm 12 or 13 (in $CUDA_HOME/bin or on PATH; on PyPI
nvidia-cuda-nvdisasm), but no GPU. The exit status is 2 if one of them is missing.

A kernel has one loop over tiles, which contains all products on the tensor cores (HMMA). The fast
path is the shortest way through this loop that computes all products and copies the next tile: no
bias, mask, rotation or end of a sequence. The general path is the longest one. Both pass a loop
inside this loop, such as the one that draws the dropout bits, once. Kernels of float32 have no such
products and are left out.
"""

import argparse
import collections
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from .build import Kernel, Missing, compile_kernels, find_program, open_library

SOURCES = ("varlen_attention_forward", "varlen_attention_backward")
_SECTION = re.compile(r"^\t\.section\t\.text\.(\w+)", re.MULTILINE)
_LINE = re.compile(r"^(?P<label>\.L_\w+):|/\*[0-9a-f]{4,}\*/\s+(?P<instruction>.*?);", re.MULTILINE)
_TARGET = re.compile(r"`\((\.L_\w+)\)")
# A barrier of the threads of a warp that went different ways: its other way is never taken here.
_DIVERGENCE = "BRA.DIV"


@dataclasses.dataclass(frozen=True)
class TileCost:
    """Instructions per thread and tile on the shortest and on the longest path."""

    fast: int
    general: int


def count_instructions(nvdisasm: str, kernel: Kernel) -> TileCost | None:
    """Returns the cost of a tile in a kernel, or None if the kernel has no products."""
    with tempfile.TemporaryDirectory() as directory:
        cubin = pathlib.Path(directory) / "kernel.cubin"
        cubin.write_bytes(kernel.cubin)
        command = [nvdisasm, "--print-code", str(cubin)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
    return next((cost for _, cost in read_machine_code(result.stdout)), None)


def read_machine_code(text: str) -> Iterator[tuple[str, TileCost]]:
    """Yields mangled names and costs of the kernels with products from what nvdisasm prints."""
    _, *sections = _SECTION.split(text)
    for name, code in zip(sections[::2], sections[1::2]):
        if "HMMA" in code:
            yield name, _tile_cost(code)


def _tile_cost(code: str) -> TileCost:
    instructions, successors = _instructions(code)
    order, jumps_back = _order(successors)
    is_product = ["HMMA" in instruction for instruction in instructions]
    is_copy = ["LDGSTS" in instruction for instruction in instructions]
    loops = _loops(successors, jumps_back)
    first = max(loops, key=lambda i: (sum(is_product[j] for j in loops[i]), -len(loops[i])))
    inside = [i for i in order if i in loops[first]]

    def best_path(weight: int) -> int:
        """Returns the instructions of the path with most products, copies and weight."""
        best, ends = {first: (0, 0, 0)}, []
        for i in inside:
            products, copies, weights = best[i]
            path = (products + is_product[i], copies + is_copy[i], weights + weight)
            for following in successors[i]:
                if following == first:
                    ends.append(path)
                elif following in loops[first] and (i, following) not in jumps_back:
                    best[following] = max(best.get(following, path), path)
        return abs(max(ends)[2])

    return TileCost(fast=best_path(-1), general=best_path(1))


def _instructions(code: str) -> tuple[list[str], list[list[int]]]:
    """Returns the instructions of a kernel, and the indices of those that may follow each."""
    instructions: list[str] = []
    labels: dict[str, int] = {}
    for line in _LINE.finditer(code):
        if line["label"]:
            labels[line["label"]] = len(instructions)
        else:
            instructions.append(line["instruction"].strip())
    successors = []
    for i, instruction in enumerate(instructions):
        following = [i + 1] if i + 1 < len(instructions) else []
        if re.match(r"(EXIT|RET|BRA(\.U)? `)", instruction):  # without a condition
            following = []
        if "BRA" in instruction and _DIVERGENCE not in instruction:
            following.insert(0, labels[_TARGET.search(instruction)[1]])
        successors.append(following)
    return instructions, successors


def _order(successors: list[list[int]]) -> tuple[list[int], set[tuple[int, int]]]:
    """Returns an order of the instructions, and the jumps back, which alone go against it."""
    order, jumps_back, open_ones, seen = [], set(), {0}, {0}
    stack = [(0, iter(successors[0]))]
    while stack:
        i, rest = stack[-1]
        for following in rest:
            if following in open_ones:
                jumps_back.add((i, following))
            elif following not in seen:
                seen.add(following)
                open_ones.add(following)
                stack.append((following, iter(successors[following])))
                break
        else:
            stack.pop()
            open_ones.remove(i)
            order.append(i)
    return order[::-1], jumps_back


def _loops(successors: list[list[int]], jumps_back: set[tuple[int, int]]) -> dict[int, set[int]]:
    """Returns the instructions of each loop by its first one, to which the loop jumps back."""
    predecessors = collections.defaultdict(list)
    for i, following in enumerate(successors):
        for j in following:
            predecessors[j].append(i)
    loops: dict[int, set[int]] = {}
    for last, first in jumps_back:
        loop = loops.setdefault(first, {first})
        waiting = [last]
        while waiting:
            i = waiting.pop()
            if i not in loop:
                loop.add(i)
                waiting += predecessors[i]
    return loops


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--architecture", default="sm_90", metavar="sm_XX", help="Default: sm_90.")
    architecture = parser.parse_args().architecture
    nvdisasm = find_program("nvdisasm")
    try:
        library = open_library()
        if nvdisasm is None:
            raise Missing("nvdisasm: set CUDA_HOME or put it on PATH")
    except Missing as missing:
        print(f"machine_code: this machine lacks {missing}", file=sys.stderr)
        return 2
    print("| instructions per tile | fast | general | registers |\n|---|---:|---:|---:|")
    for source in SOURCES:
        for kernel in compile_kernels(library, source, architecture):
            cost = count_instructions(nvdisasm, kernel)
            if cost is not None:
                print(
                    f"| `{kernel.name}` | {cost.fast} | {cost.general} | {kernel.registers} |",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
