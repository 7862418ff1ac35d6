"""The base class of peers, and their tasks."""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Batch = dict[str, np.ndarray]

# The update is computed, but does not change the weights, so that all variants and workloads are
# compared and timed with the same weights.
LEARNING_RATE = 0.0

# The environment variable with the number of devices of the peer for pipeline stages.
STAGES = "BENCHMARK_STAGES"

# The weights of the pre-training heads, named as in transformers' BertForPreTraining.
HEADS = (
    "cls.predictions.transform.dense.weight",
    "cls.predictions.transform.dense.bias",
    "cls.predictions.transform.LayerNorm.weight",
    "cls.predictions.transform.LayerNorm.bias",
    "cls.predictions.bias",
    "cls.seq_relationship.weight",
    "cls.seq_relationship.bias",
)


def read_config(directory: str) -> dict[str, Any]:
    """Returns the content of the model's `config.json`."""
    with open(os.path.join(directory, "config.json"), encoding="utf-8") as file:
        return json.load(file)


_CALIBRATION_SEQUENCES = 48
_CALIBRATION_LENGTHS = (8, 128)  # of the shortest and the longest one


@dataclasses.dataclass(frozen=True)
class Setup:
    """What a peer is given."""

    model_directory: str  # the shared weights in Hugging Face's format, written by `models.py`
    threads: int  # for the computation of one call
    scratch: str  # a temporary directory of the process, for exported models

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        return read_config(self.model_directory)

    @property
    def has_segments(self) -> bool:
        """Whether the network has embeddings of segments."""
        return bool(self.config.get("type_vocab_size"))

    @property
    def has_pooler(self) -> bool:
        """Whether the pooled output is compared; otherwise it is the state of the first token.

        Only some of the other encoders have a pooler, and of these some only with a head.
        """
        return self.config["model_type"] == "bert"

    @functools.cached_property
    def encoder_tensors(self) -> dict[str, np.ndarray]:
        return self._tensors("model.safetensors")

    @functools.cached_property
    def head_tensors(self) -> dict[str, np.ndarray]:
        return self._tensors("pretraining_heads.safetensors")

    def _tensors(self, name):
        from safetensors.numpy import load_file

        return load_file(os.path.join(self.model_directory, name))


@dataclasses.dataclass(frozen=True)
class Task:
    """A computation to be timed, with everything else prepared.

    `run` runs it and waits for its end; this is what is timed. `outputs` are compared with those of
    other peers.
    """

    run: Callable[[], Any]
    outputs: Callable[[], dict[str, np.ndarray]]
    calls_inside: int = 1  # computations in one `run`; the time is divided by it


def inference_task(model, feeds: Sequence[Any]) -> Task:
    """Runs a model, from one of `feeds` to `(sequence_output, pooled_output)`, on all of them.

    The compared outputs are float32.
    """

    def outputs():
        result = {}
        for index, feed in enumerate(feeds):
            for name, value in zip(("sequence_output", "pooled_output"), model(feed)):
                result[f"{index}/{name}"] = np.array(value, np.float32)
        return result

    return Task(lambda: [model(feed) for feed in feeds], outputs)


def matmul_task(multiply, calls_inside: int = 1) -> Task:
    """Computes y = x W (+ a zero bias) with a constant weight; see `matmul_inputs`."""
    return Task(multiply, lambda: {"y": np.asarray(multiply())}, calls_inside)


def matmul_inputs(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns x `[M, K]` and W `[K, N]`, float32, for a shape (M, K, N); equal for all peers."""
    m, k, n = shape
    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k), np.float32)
    return x, generator.standard_normal((k, n), np.float32) / np.float32(np.sqrt(k))


def calibration_examples(config: dict) -> list[dict[str, np.ndarray]]:
    """Returns single sequences `[1, T]` of random tokens, like those of the workloads, to find the
    static scales of 8-bit integers with. (NNCF's default of 300 would need many minutes.)"""
    generator = np.random.default_rng(0)
    most = config["max_position_embeddings"]
    first, last = (min(length, most) for length in _CALIBRATION_LENGTHS)
    examples = []
    for length in np.linspace(first, last, _CALIBRATION_SEQUENCES, dtype=int):
        shape = [1, length]
        examples.append(
            {
                "token_ids": generator.integers(5, config["vocab_size"], shape, np.int32),
                "segment_ids": (np.arange(length)[np.newaxis] >= length // 2).astype(np.int32),
                "padding_mask": np.ones(shape, bool),
            }
        )
    return examples


def generation_task(generate: Callable[[], np.ndarray]) -> Task:
    """Writes targets, int ids `[B, n]` without the start token."""
    return Task(generate, lambda: {"ids": generate()})


def sentence_task(encode, text: str) -> Task:
    """Encodes one sentence to a vector, `[1, H]`; the time includes the tokenization."""
    return Task(lambda: encode(text), lambda: {"vector": np.asarray(encode(text))})


def encode_task(encode, slices: Sequence[Sequence[str]]) -> Task:
    """Encodes the texts of the next slice to vectors, `[n, H]`, in each run; they go round."""
    turns = itertools.cycle(slices)
    compared = [text for texts in slices for text in texts[:4]]
    return Task(lambda: encode(next(turns)), lambda: {"vectors": np.asarray(encode(compared))})


def calls_task(function: Callable, texts: Any) -> Task:
    """Calls a method with texts; `function` returns what is compared, by name."""
    return Task(
        lambda: function(texts),
        lambda: {name: np.asarray(value) for name, value in function(texts).items()},
    )


def tokenizer_task(run: Callable, ids: Callable[..., Sequence[Sequence[int]]]) -> Task:
    """Tokenizes texts; `ids` makes rows of ids from the result of `run`."""

    def outputs():
        rows = ids(run())
        return {
            "ids": np.concatenate([np.asarray(row, np.int32) for row in rows]),
            "row_splits": np.cumsum([0, *map(len, rows)]),
        }

    return Task(run, outputs)


class Peer:
    """One framework to compare; `version` is for the report.

    A subclass has a method for each of its jobs:

    - `inference(batches, variant)`, `inference_int8(batches, variant)`,
    - `inference_bfloat16(batches, variant)`, whose variants begin with the precision,
    - `training(batches, variant)`,
    - `ops(case, variant)`, `matmul(shape, variant)`, `matmul_int8(shape, variant)`,
    - `tokenizer(texts, vocabulary, variant)`,
    - `latency(text, variant)`, `latency_int8(text, calibration, variant)`,
    - `calls(directory, method, texts, variant)`,
    - `encode(slices, variant)`, `encode_int8(slices, calibration, variant)`,
    - `generation(batch, new_tokens, num_beams, variant)` and `generation_bfloat16` with the same.
    """

    version: str
    VARIANTS: dict[str, tuple[str, ...]] = {}  # by job

    def __init__(self, setup: Setup):
        self.setup = setup

    def variants(self, job: str, bucket: int | None, is_ragged: bool) -> tuple[str, ...]:
        """Returns the variants to try, of which the search chooses the fastest for each workload.

        `bucket` is the number of sequences per batch, None for one batch; `is_ragged` says whether
        they have different lengths.
        """
        return self.VARIANTS.get(job, ("default",))
