"""What a peer must be able to do."""

import abc
import dataclasses
import functools
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

Batch = dict[str, np.ndarray]

# Every update is computed in full and changes nothing: so every arrangement of every workload is
# compared and timed on the same weights.
LEARNING_RATE = 0.0


@dataclasses.dataclass(frozen=True)
class Setup:
    """What every peer gets.

    Attributes:
        model_directory: Hugging Face directory of the shared weights (`models.py` made it).
        threads: For the arithmetic of one call.
        scratch: A folder of the run, for exports.
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
        """The two heads of pre-training, named as in transformers' BertForPreTraining."""
        return self._tensors("pretraining_heads.safetensors")

    def _tensors(self, name):
        from safetensors.numpy import load_file

        return load_file(os.path.join(self.model_directory, name))


class Task(abc.ABC):
    """One thing to be timed; everything that is not the computation was done before.

    Attributes:
        calls_inside: How many times one `run` computes it; the time is divided by that.
    """

    calls_inside = 1

    @abc.abstractmethod
    def run(self) -> Any:
        """Computes once, to the end. This is what the clock sees."""

    @abc.abstractmethod
    def outputs(self) -> dict[str, np.ndarray]:
        """What the computation gives, for the comparison with the other peers."""


class InferenceTask(Task):
    """Runs a model on every batch of an arrangement.

    Args:
        model: A function from what `feed` returned to `(sequence_output, pooled_output)`.
        feeds: The batches in the framework's own form.
        to_numpy: Turns one of the framework's outputs into an array.
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
    """y = x W (+ a zero bias) with a weight that stays; see `matmul_inputs`.

    Args:
        multiply: A function without arguments, to y.
        calls_inside: How many times it multiplies.
    """

    def __init__(self, multiply, calls_inside: int = 1):
        self._multiply = multiply
        self.calls_inside = calls_inside

    def run(self):
        return self._multiply()

    def outputs(self):
        return {"y": np.asarray(self._multiply())}


def matmul_inputs(shape: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """x `[M, K]` and W `[K, N]` of a shape (M, K, N), float32, the same for every peer."""
    m, k, n = shape
    generator = np.random.default_rng(0)
    x = generator.standard_normal((m, k), np.float32)
    return x, generator.standard_normal((k, n), np.float32) / np.float32(np.sqrt(k))


class SentenceTask(Task):
    """One sentence, text in and vector out, tokenized inside the clock.

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
    """One framework.

    `variants` names the ways to arrange it that are worth a try; the search takes the fastest for
    each workload. A subclass has a method for each of its jobs:

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
        """The version of the framework, for the report."""

    def variants(self, job: str, bucket: int | None, is_ragged: bool) -> tuple[str, ...]:
        """Names of variants for an arrangement in batches of `bucket` (None: one batch)."""
        return ("default",)
