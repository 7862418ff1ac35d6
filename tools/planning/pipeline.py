"""Pipelines of stages: their blocks, the bubble, and the activations in flight.

A micro-batch is one part of the gradient accumulation.

Reference: Huang et al. 2019 (GPipe, arXiv 1811.06965); Narayanan et al. 2019 (PipeDream, "1F1B").
"""

from collections.abc import Sequence

SCHEDULES = ("1f1b", "gpipe")


def micro_batches_in_flight(schedule: str, stage: int, num_stages: int, num_parts: int) -> int:
    """Returns how many micro-batches' activations a stage holds at a time, at most.

    Args:
        schedule: One of `SCHEDULES`.
        stage: The stage, from 0.
        num_stages: k.
        num_parts: m, the number of micro-batches of a step.
    """
    if num_stages == 1:
        return 1  # plain gradient accumulation: one part after the other
    if schedule == "gpipe":
        return num_parts
    return min(num_parts, num_stages - stage)  # as in bert_tf/training/pipelined_step.py


def bubble_share(num_stages: int, num_parts: int) -> float:
    """Returns the share of a pipeline's time in which a stage waits: (k - 1) / (m + k - 1)."""
    return (num_stages - 1) / (num_parts + num_stages - 1)


def blocks_per_stage(
    num_blocks: int, num_stages: int, block: float, first: float, last: float
) -> list[int]:
    """Divides the blocks so that the slowest stage is as fast as possible.

    Args:
        num_blocks: L, at least `num_stages`.
        num_stages: k.
        block: The time of a block.
        first: The time of what precedes the first block, the embeddings.
        last: The time of what follows the last block, the heads.
    """
    counts = [1] * num_stages
    extra = [0.0] * num_stages
    extra[0] += first
    extra[-1] += last
    for _ in range(num_blocks - num_stages):
        fastest = min(range(num_stages), key=lambda i: extra[i] + counts[i] * block)
        counts[fastest] += 1
    return counts


def pipeline_seconds(stages: Sequence[float], num_parts: int) -> float:
    """Returns the time of a step's forward and backward passes.

    Args:
        stages: The seconds of each stage for one micro-batch.
        num_parts: m.
    """
    return (num_parts + len(stages) - 1) * max(stages)
