"""The base classes of peers and their tasks."""

import abc
import dataclasses
import functools
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

Batch = dict[str, np.ndarray]

# The update is computed, but does not change the weights, so that all variants and workloads are
# compared and timed with the same weights.
LEARNING_RATE = 0.0


@dataclasses.dataclass(frozen=True)
class Setup:
    """The setup that all peers share.

    Attributes:
        model_directory: The Hugging Face directory of the shared weights, written by `models.py`.
        threads: Number of threads for the computation of one call.
        scratch: A temporary directory of the run, for exported models.
    """

    model_directory: str
    threads: int
    scratch: str

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        with open(os.path.join(self.model_directory, "config.json"), encoding="utf-8") as file:
            return json.load(file)

    @functools.cached_property
    def encoder_tensors(self) -> dict[str, np.ndarray]:
        return self._tensors("model.safetensors")

    @functools.cached_property
    def head_tensors(self) -> dict[str, np.ndarray]:
        """The weights of the pre-training heads, named as in transformers' BertForPreTraining."""
        return self._tensors("pretraining_heads.safetensors")

    def _tensors(self, name):
        from safetensors.numpy import load_file

        return load_file(os.path.join(self.model_directory, name))


class Task(abc.ABC):
    """A computation to be timed, with everything else prepared.

    Attributes:
        calls_inside: Number of computations in one `run`; the time is divided by it.
    """

    calls_inside = 1

    @abc.abstractmethod
    def run(self) -> Any:
        """Runs the computation and waits for its end. This is what is timed."""

    @abc.abstractmethod
    def outputs(self) -> dict[str, np.ndarray]:
        """Returns the outputs of the computation, to compare them with those of other peers."""


class InferenceTask(Task):
    """Runs a model on all batches of a workload.

    Args:
        model: A function from one of `feeds` to `(sequence_output, pooled_output)`.
        feeds: The batches in the form of the framework.
        to_numpy: A function that converts an output of the framework to an array.
    """

    def __init__(self, model, feeds: Sequence[Any], to_numpy=np.asarray):
        self._model = model
        self._feeds = feeds
        self._to_numpy = to_numpy

    def run(self):
        return [self._model(feed) for feed in self._feeds]

    def outputs(self):
        result = {}
        for index, (sequence_output, pooled_output) in enumerate(self.run()):
            result[f"{index}/sequence_output"] = self._to_numpy(sequence_output)
            result[f"{index}/pooled_output"] = self._to_numpy(pooled_output)
        return result


class MatmulTask(Task):
    """Computes y = x W (+ a zero bias) with a constant weight; see `matmul_inputs`.

    Args:
        multiply: A function without arguments that returns y.
        calls_inside: Number of matmuls in one call of it.
    """

    def __init__(self, multiply, calls_inside: int = 1):
        self._multiply = multiply
        self.calls_inside = calls_inside

    def run(self):
        return self._multiply()

    def outputs(self):
        return {"y": np.asarray(self._multiply())}


def matmul_inputs(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Returns x `[M, K]` and W `[K, N]`, float32, for a shape (M, K, N); equal for all peers."""
    m, k, n = shape
    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k), np.float32)
    return x, generator.standard_normal((k, n), np.float32) / np.float32(np.sqrt(k))


class SentenceTask(Task):
    """Encodes one sentence, from text to vector; the time includes the tokenization.

    Args:
        encode: A function from the text to the vector, `[1, H]`.
        text: The sentence.
    """

    def __init__(self, encode, text: str):
        self._encode = encode
        self._text = text

    def run(self):
        return self._encode(self._text)

    def outputs(self):
        return {"vector": np.asarray(self.run())}


class Peer(abc.ABC):
    """One framework to compare.

    `variants` returns the names of the variants to try; the search chooses the fastest one for each
    workload. A subclass has a method for each of its jobs:

    - `inference(batches, variant)`, `inference_int8(batches, variant)`,
    - `training(batches, variant)`,
    - `ops(case, variant)`, `matmul(shape, variant)`, `matmul_int8(shape, variant)`,
    - `tokenizer(texts, vocabulary, variant)` and `latency(text, variant)`.
    """

    def __init__(self, setup: Setup):
        self.setup = setup

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """Returns the version of the framework, for the report."""

    def variants(self, job: str, bucket: int | None, is_ragged: bool) -> tuple[str, ...]:
        """Returns the names of the variants to try.

        Args:
            job: The job.
            bucket: Sequences per batch; None for one batch.
            is_ragged: Whether the sequences have different lengths.
        """
        return ("default",)
