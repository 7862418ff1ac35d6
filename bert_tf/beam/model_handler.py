"""`RunInference` of Apache Beam with a model of this package.

An example is one text, or a tuple: the question and its context, the query and a document; a text
and the numbers that the task's spec declares as given.
Beam collects examples to batches by their weight. The model sorts each batch by length and computes
it in parts of at most `token_budget` tokens, padding counted, exactly as its own method does.

Reference: apache_beam/ml/inference/base.py, `ModelHandler`.
"""

import contextlib
import dataclasses
import importlib
import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from bert_tf import tasks
from bert_tf.config import REGRESSION
from bert_tf.errors import UserError, check_limits, require, require_one_of
from bert_tf.inputs import TOKEN_BUDGET

# Bytes of text per token of the budget in a batch of Beam: some 16 parts of English text, which
# keeps padding and the cost of a call small.
_BATCH_BYTES_PER_TOKEN = 64


@dataclasses.dataclass(frozen=True)
class Refused:
    """What `PredictionResult.inference` is for an example that the model cannot take.

    Args:
        error: The reason.
    """

    error: str


class BertModelHandler(ModelHandler):
    """Answers the examples of a `RunInference` with a model of this package.

    Every process loads the model once. An example that the model cannot take does not fail its
    batch: it gets a `Refused` as its inference, the others get their answers. To carry other values
    with each example, wrap the handler in Beam's `KeyedModelHandler`; keys may be anything.

    Args:
        model_dir: The directory of the trained model, as `from_pretrained` takes it. The workers
            read it, so it must exist on each of them.
        method: A name in the `answers` of a task's spec, such as "encode" (vectors float32 `[D]`),
            "classify" (`Classification`), "tag" (lists of `TaggedSpan`), "answer" (`Answer`), or
            "rerank" (floats): the score of a query and a document by a text classifier. That is
            the number of a regression, or the probability of `relevant_label`.
        token_budget: The maximum number of tokens that are computed at a time, padding counted, as
            in `TaskModel.predict`.
        batch_bytes: The maximum size of a batch of Beam in bytes of UTF-8, at least one per token.
            None for 64 per token of the budget.
        relevant_label: For "rerank" with a classifier of labels: the label whose probability is the
            score.
        num_threads: The number of TensorFlow's threads in a process that has not used TensorFlow
            yet, for several processes on one machine. None for one per core.
        model_options: Further arguments of `from_pretrained`.
        **options: `large_model`, `model_copies` and `env_vars` of Beam's `ModelHandler`.
            `large_model=True` shares one model among the processes of a machine, for a GPU.

    Raises:
        UserError: If an argument is out of range. When the model is loaded: if it is not trained,
            or cannot rerank.

    Example:
        >>> from bert_tf.beam.model_handler import BertModelHandler
        >>> handler = BertModelHandler("minilm/", "encode")
        >>> model = handler.load_model()
        >>> results = handler.run_inference(["a good film", 7], model)
        >>> [result.inference for result in results][1]
        Refused(error='An example of encode must be 1 text. Received: 7')
    """

    def __init__(
        self,
        model_dir: str,
        method: str,
        *,
        token_budget: int = TOKEN_BUDGET,
        batch_bytes: int | None = None,
        relevant_label: str | None = None,
        num_threads: int | None = None,
        model_options: dict[str, Any] | None = None,
        **options: Any,
    ):
        require_one_of("method", method, tuple(tasks.answers()))
        check_limits(token_budget=token_budget, batch_bytes=batch_bytes, num_threads=num_threads)
        rule = f"must be None for the method {method}"
        is_valid = relevant_label is None or tasks.answers()[method][1].are_scores
        require(is_valid, rule, UserError, relevant_label=relevant_label, method=method)
        super().__init__(**options)
        self.model_dir = model_dir
        self.method = method
        self.token_budget = token_budget
        self.batch_bytes = batch_bytes or _BATCH_BYTES_PER_TOKEN * token_budget
        self.relevant_label = relevant_label
        self.num_threads = num_threads
        self.model_options = model_options or {}
        self._packages = tasks.registered_packages()

    def load_model(self) -> "_LoadedModel":
        if self.num_threads is not None:
            _limit_threads(self.num_threads)
        for package in self._packages:  # a worker has not registered their tasks
            importlib.import_module(package)
        spec, asked = tasks.answers()[self.method]
        model = spec.model_class().from_pretrained(self.model_dir, **self.model_options)
        model.require_trained_heads("asked")
        score = _score_name(model, self.relevant_label) if asked.are_scores else None
        return _LoadedModel(model, self.method, self.token_budget, score)

    def run_inference(
        self,
        batch: Sequence[Any],
        model: "_LoadedModel",
        inference_args: dict[str, Any] | None = None,
    ) -> Iterable[PredictionResult]:
        """Returns a `PredictionResult` for each example, in their order."""
        answers = model.answers(list(batch))
        return [
            PredictionResult(example, answer, self.model_dir)
            for example, answer in zip(batch, answers, strict=True)
        ]

    def batch_elements_kwargs(self) -> dict[str, Any]:
        """Returns the arguments of `BatchElements`: an equal minimum and maximum turn off timing.

        Apache Beam 2.77 has no `max_batch_weight` there; with `element_size_fn`, the maximum size
        is one of weights.
        """
        return {
            "min_batch_size": self.batch_bytes,
            "max_batch_size": self.batch_bytes,
            "element_size_fn": self.weight,
        }

    def weight(self, element: Any) -> int:
        """Returns the bytes of UTF-8 of the texts of an element, with or without a key.

        The maximum is that of a batch: before an element that is heavier, `BatchElements` would
        emit a batch without elements, which `KeyedModelHandler` does not take.
        """
        return max(1, min(_size(element), self.batch_bytes))

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        return _size(batch)

    def get_metrics_namespace(self) -> str:
        return "BertModelHandler"

    def validate_inference_args(self, inference_args: dict[str, Any] | None) -> None:
        rule = "must be None: the arguments are those of BertModelHandler"
        require(not inference_args, rule, UserError, inference_args=inference_args)


class _LoadedModel:
    """A model in memory, which the threads of a worker ask in turn.

    With `large_model=True` it is in another process, and what it takes and returns is pickled.

    Attributes:
        model: The model.
    """

    def __init__(self, model, method, token_budget, score):
        self.model = model
        self._name = method
        self._spec, self._asked = tasks.answers()[method]
        self._token_budget = token_budget
        self._score = score
        self._lock = threading.Lock()

    def answers(self, examples: list) -> list:
        """Returns the answer to each example, or a `Refused`."""
        answers = [None] * len(examples)
        given = list(self._spec.given_inputs.values())
        groups = {count: [] for count in self._asked.texts}
        for number, example in enumerate(examples):
            parts = example if isinstance(example, (tuple, list)) else (example,)
            count = len(parts) - len(given)
            values = list(map(_value, parts[count:], given))
            if count in groups and all(map(_is_text, parts[:count])) and None not in values:
                groups[count].append((number, (*parts[:count], *values)))
            else:
                answers[number] = self._refused(example)
        for group in groups.values():
            asked = [parts for _, parts in group]
            for (number, _), answer in zip(group, self._ask(asked), strict=True):
                answers[number] = answer
        return answers

    def _ask(self, examples):
        """Returns the answers to examples of as many texts; halves find those that are refused."""
        if not examples:
            return []
        try:
            with self._lock:
                answers = self._answers_of(list(map(list, zip(*examples))))
        except UserError as error:
            if len(examples) == 1:
                return [Refused(str(error))]
            middle = len(examples) // 2
            return [*self._ask(examples[:middle]), *self._ask(examples[middle:])]
        if self._score is not None:
            return [answer.scores[self._score] for answer in answers]
        return list(answers)

    def _answers_of(self, columns):
        method = getattr(self.model, self._asked.method)
        if not self._asked.by_column:
            columns = columns if len(columns) == 1 else [tuple(columns)]
        return method(*columns, token_budget=self._token_budget)

    def _refused(self, example):
        counts = " or ".join(map(str, self._asked.texts))
        noun = "text" if self._asked.texts == (1,) else "texts"
        noun = " and ".join([noun, *(f"`{name}`" for name in self._spec.given_inputs)])
        return Refused(
            f"An example of {self._name} must be {counts} {noun}. Received: {example!r:.200}"
        )


def _is_text(text):
    """Returns whether it is a string without lone surrogates, which UTF-8 does not have."""
    if not isinstance(text, str):
        return False
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _value(value, given):
    """Returns what a declared input takes, a number or numbers of its shape; None for others."""
    try:
        value = json.loads(value) if isinstance(value, str) else value  # of a CSV file
        array = np.asarray(value, given.dtype)
    except (TypeError, ValueError):
        return None
    return array.tolist() if array.shape == given.shape else None


def _size(element):
    if isinstance(element, str):
        # Surrogates are refused later.
        return len(element) if element.isascii() else len(element.encode("utf-8", "replace"))
    return sum(map(_size, element)) if isinstance(element, (tuple, list)) else 0


def _score_name(model, relevant_label):
    """Returns the entry of `Classification.scores` that a classifier reranks by."""
    names = model.preprocessor.names
    if model.problem_type == REGRESSION and len(names) == 1 and relevant_label is None:
        return names[0]
    if model.problem_type != REGRESSION and relevant_label in names:
        return relevant_label
    raise UserError(
        "`relevant_label` must be one of the classifier's labels, or None for a regression with "
        f"one number. Received: {relevant_label=}, a classifier with "
        f"problem_type={model.problem_type!r} and the labels {names}"
    )


def _limit_threads(count):
    with contextlib.suppress(RuntimeError):  # the process has computed with TensorFlow already
        tf.config.threading.set_intra_op_parallelism_threads(count)
        tf.config.threading.set_inter_op_parallelism_threads(count)
