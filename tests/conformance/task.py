"""What the tests of this folder need to know of a task.

`tests/tasks/<task>/conformance.py` has it for every task. Token dictionaries, labels and answers
are made by hand there, piece by piece, so that they do not come from the code under test.

Glossary: `B` rows, `T` tokens, `K` texts of an example, `C` choices, `P` masked positions.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertTokenizer

ROWS = 6
LENGTH = 24
CONFIG = BertConfig(
    vocab_size=48,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=24,
    max_position_embeddings=LENGTH,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
ONE_BLOCK = dataclasses.replace(CONFIG, num_hidden_layers=1)  # for what is traced
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."),
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"[unused{index}]" for index in range(12)),
]

TEXTS = ["good film", "the bad film.", "a b c d e", "good", "the film", "bad. the e"]
PAIRS = ["the", "film good", "bad", "the good film.", "a", "good bad film"]
WEIGHTS = np.array([1.0, 0.5, 2.0, 1.0, 0.25, 1.5], np.float32)
CLASSES = np.array([0, 1, 1, 0, 1, 0], np.int32)


def pieces(text: str) -> list[str]:
    """The pieces of a text: all its words are in the vocabulary."""
    return re.findall(r"\[MASK\]|\w+|[^\w\s]", text)


def encoded(firsts, seconds=None) -> dict[str, np.ndarray]:
    """`[CLS] first [SEP] second [SEP]` as arrays `[B, T]`, padded to the longest row."""
    rows, segments = [], []
    for number, first in enumerate(firsts):
        row = ["[CLS]", *pieces(first), "[SEP]"]
        segment = [0] * len(row)
        if seconds is not None:
            second = [*pieces(seconds[number]), "[SEP]"]
            row, segment = row + second, segment + [1] * len(second)
        rows.append([VOCABULARY.index(piece) for piece in row])
        segments.append(segment)
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    token_ids, segment_ids = np.zeros([2, *mask.shape], np.int32)
    token_ids[mask], segment_ids[mask] = sum(rows, []), sum(segments, [])
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": mask}


def grouped(features, size) -> dict[str, np.ndarray]:
    """`[B * size, T]` -> `[B, size, T]`."""
    return {name: values.reshape(-1, size, values.shape[-1]) for name, values in features.items()}


@dataclasses.dataclass(frozen=True)
class Lack:
    """Something that a task does not have.

    Attributes:
        reason: Why.
        error: What the error says, as a regular expression; None: there is nothing to try.
    """

    reason: str
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Task:
    """What the tests need to know of a task.

    Attributes:
        kind: The class.
        features: A token dictionary.
        options: Arguments of the class besides backbone and tokenizer.
        saved: Others, none of them the default, for the tests of files.
        text: The same rows as raw text, as `fit` takes them.
        labels: Their labels, as `fit` takes them with raw text.
        targets: Their labels, as `fit` takes them with the token dictionary.
        compiled: Arguments of `compile` besides the optimizer.
        of_text: Gives the token dictionary and the labels that `text` is for `evaluate`; None:
            `features` and `targets`.
        asked: Raw text to ask the model about; None: the same as `text`.
        asked_features: The same rows as a token dictionary.
        answers: What the model's own method says to raw text, of a model and `asked`; it takes
            `token_budget` too.
        by_hand: The same, from what the model computes for `asked_features`.
        signature: Names of the inputs of `serving_default`, in the order of the columns of text.
        exported: Arguments of `export`.
        served: The same as `answers`, from the outputs of `serving_default`.
        lacks: What the task does not have.
        seed: That of the weights.
        is_variant: Whether another entry has the same class; then only the full suite tests it.
    """

    kind: type
    features: Mapping[str, np.ndarray]
    options: Mapping = dataclasses.field(default_factory=dict)
    text: Any = None
    labels: Any = None
    targets: Any = None
    compiled: Mapping = dataclasses.field(default_factory=dict)
    of_text: Callable | None = None
    asked: Any = None
    asked_features: Any = None
    answers: Callable = lambda model, asked, **batching: model.predict(asked, verbose=0, **batching)
    by_hand: Callable = np.asarray
    signature: tuple[str, ...] = ()
    saved: Mapping = dataclasses.field(default_factory=dict)
    exported: Mapping = dataclasses.field(default_factory=dict)
    served: Callable = lambda outputs: outputs["logits"].numpy()
    lacks: Mapping[str, Lack] = dataclasses.field(default_factory=dict)
    seed: int = 1
    is_variant: bool = False

    @property
    def question(self):
        """Raw text to ask the model about."""
        return self.text if self.asked is None else self.asked

    @property
    def question_features(self):
        """The same rows as a token dictionary."""
        return self.features if self.asked_features is None else self.asked_features

    @property
    def trains_on_text(self) -> bool:
        """Whether `fit` and `evaluate` take `text`."""
        return not {"text", "training on text"} & set(self.lacks)

    def rows_of_text(self):
        """The token dictionary and the labels that `evaluate` must make of `text` and `labels`."""
        return (self.features, self.targets) if self.of_text is None else self.of_text()

    def signature_inputs(self) -> dict[str, tf.Tensor]:
        """The same rows as `serving_default` takes them."""
        columns = self.question if isinstance(self.question, tuple) else (self.question,)
        return {name: tf.constant(column) for name, column in zip(self.signature, columns)}

    def dataset_of_text(self) -> tf.data.Dataset:
        """One batch of strings, with labels if the task has them."""
        parts = self.text if self.labels is None else (self.text, self.labels)
        return tf.data.Dataset.from_tensor_slices(parts).batch(ROWS)

    def dataset_of_tokens(self) -> tf.data.Dataset:
        """One batch of token dictionaries with labels and weights."""
        data = (self.features, self.targets, WEIGHTS)
        return tf.data.Dataset.from_tensor_slices(data).batch(ROWS)


NO_TEXT_BATCHES = {"datasets of text": Lack("labels of the words of a text are no row of numbers")}


@functools.cache
def tokenizer() -> BertTokenizer:
    """The tokenizer of all models here.

    It keeps case: its graph, which every pipeline of text and every export holds, has a third as
    many operations as that of one that lowers it.
    """
    return BertTokenizer(VOCABULARY, lowercase=False)


def make(task: Task, seed: int | None = None, dtype: str | None = None, config=CONFIG, **options):
    """A model of a task. No weight is zero or one, so that one that gets lost is noticed."""
    seed = task.seed if seed is None else seed
    keras.utils.set_random_seed(seed)
    if "text" not in task.lacks:
        options.setdefault("tokenizer", tokenizer())
    options = {**task.options, **options}
    model = task.kind(BertBackbone(config, dtype=dtype), dtype=dtype, **options)
    source = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(variable + source.normal(0.0, 0.3, variable.shape).astype(np.float32))
    return model


_shared: dict[tuple, keras.Model] = {}  # by task and whether it has the options `saved`


def shared(task: Task, saved: bool = False) -> keras.Model:
    """Returns a model that computes eagerly, the same one to all tests that change nothing of it.

    Making a model takes as long as most of what tests do with it.

    Args:
        task: The task.
        saved: Whether it has the options `Task.saved`.
    """
    key = (id(task), saved)
    if key not in _shared:
        _shared[key] = make(task, **(task.saved if saved else {}))
        _shared[key].run_eagerly = True
    return _shared[key]


def assert_same(received, expected, tolerance: float = 1e-5) -> None:
    """Two nests of numbers and strings are the same, their numbers to `tolerance`."""
    tf.nest.assert_same_structure(received, expected)
    for one, other in zip(tf.nest.flatten(received), tf.nest.flatten(expected)):
        if one is None or isinstance(one, str):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
