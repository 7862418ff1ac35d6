"""The table of the tasks: what the tests of this folder need to know of each.

A new task is one entry of `TASKS`. Token dictionaries, labels and answers are made by hand here,
piece by piece, so that they do not come from the code under test.

Glossary: `B` rows, `T` tokens, `K` texts of an example, `C` choices, `P` masked positions.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import BertBackbone, BertConfig, BertTokenizer
from bert_tf.tasks.masked_lm import mask_texts

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
VOCABULARY = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."),
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"[unused{index}]" for index in range(12)),
]

TEXTS = ["good film", "the bad film.", "a b c d e", "good", "the film", "bad. the e"]
PAIRS = ["the", "film good", "bad", "the good film.", "a", "good bad film"]
WEIGHTS = np.array([1.0, 0.5, 2.0, 1.0, 0.25, 1.5], np.float32)
CLASSES = np.array([0, 1, 1, 0, 1, 0], np.int32)
WORDS = [re.findall(r"\w+|[^\w\s]", text) for text in TEXTS]
WORD_LABELS = ["n", "v", "."]
CHOICES = [[pair, text] for pair, text in zip(PAIRS, TEXTS[::-1])]
CONTEXTS = ["the good film", "film. a bad film", "a b c d", "the e", "bad good bad", "the film."]
ANSWERS = [("good film", 4), ("film", 0), ("b", 2), ("e", 4), ("bad good bad", 0), (".", 8)]
# Where these begin and end among the pieces of their contexts.
ANSWER_PIECES = [(1, 2), (0, 0), (1, 1), (1, 1), (0, 2), (2, 2)]
MASKED = ["[MASK] film", "the [MASK] [MASK].", "a b", "the film", "good [MASK] bad", "e [MASK]"]
MASKED = [text if "[MASK]" in text else f"{text} [MASK]" for text in MASKED]


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

    @property
    def question(self):
        """Raw text to ask the model about."""
        return self.text if self.asked is None else self.asked

    @property
    def question_features(self):
        """The same rows as a token dictionary."""
        return self.features if self.asked_features is None else self.asked_features

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


@functools.cache
def tokenizer() -> BertTokenizer:
    """The tokenizer of all models here.

    It keeps case: its graph, which every pipeline of text and every export holds, has a third as
    many operations as that of one that lowers it.
    """
    return BertTokenizer(VOCABULARY, lowercase=False)


def make(task: Task, seed: int = 1, dtype: str | None = None, config=CONFIG, **options):
    """A model of a task. No weight is zero or one, so that one that gets lost is noticed."""
    keras.utils.set_random_seed(seed)
    if "text" not in task.lacks:
        options.setdefault("tokenizer", tokenizer())
    options = {**task.options, **options}
    model = task.kind(BertBackbone(config, dtype=dtype), dtype=dtype, **options)
    source = np.random.default_rng(seed)
    for variable in model.weights:
        variable.assign(variable + source.normal(0.0, 0.3, variable.shape).astype(np.float32))
    return model


def _label_words():
    """Words to labels: any rule does."""
    rule = {".": "."}
    return [[rule.get(word, "n" if word in "good film" else "v") for word in row] for row in WORDS]


def _word_targets():
    """int32 `[B, T]`: every word is one piece, the others are not labelled."""
    targets = np.full(encoded(TEXTS)["token_ids"].shape, -100, np.int32)
    for row, labels in enumerate(_label_words()):
        targets[row, 1 : 1 + len(labels)] = [WORD_LABELS.index(label) for label in labels]
    return targets


def _tags_by_hand(logits):
    """Every word with its characters and its likeliest label."""
    found = []
    for text, row in zip(TEXTS, np.asarray(logits)):
        words = list(re.finditer(r"\w+|[^\w\s]", text))
        tags = [WORD_LABELS[index] for index in row[1 : 1 + len(words)].argmax(-1)]
        found.append([(word.start(), word.end(), tag) for word, tag in zip(words, tags)])
    return found


def _tags_served(outputs):
    columns = [outputs[f"entity_{name}"].numpy() for name in ("start", "end", "label")]
    return [
        [(int(a), int(b), label.decode()) for a, b, label in list(zip(*row))[:count]]
        for row, count in zip(zip(*columns), outputs["entity_count"].numpy())
    ]


def _answers_by_hand(logits):
    """The best span of each context, of all spans."""
    found = []
    for text, context, (starts, ends) in zip(TEXTS, CONTEXTS, np.asarray(logits)):
        first = len(pieces(text)) + 2  # [CLS] question [SEP]
        words = list(re.finditer(r"\w+|[^\w\s]", context))
        spans = [(i, j) for i in range(len(words)) for j in range(i, len(words))]
        i, j = max(spans, key=lambda span: starts[first + span[0]] + ends[first + span[1]])
        start, end = words[i].start(), words[j].end()
        found.append((context[start:end], start, end))
    return found


def _answers_served(outputs):
    columns = [outputs[name].numpy().tolist() for name in ("answer", "start", "end")]
    return [(answer.decode(), start, end) for answer, start, end in zip(*columns)]


def _answer_positions():
    """int32 `[B, 2]`: the first and the last token of each answer."""
    offsets = np.array([len(pieces(text)) + 2 for text in TEXTS])
    return (np.array(ANSWER_PIECES) + offsets[:, None]).astype(np.int32)


def _mask_places() -> list[list[int]]:
    """The columns of the masks of each row of `MASKED`."""
    return [[1 + i for i, p in enumerate(pieces(text)) if p == "[MASK]"] for text in MASKED]


def _masked_features():
    places = _mask_places()
    positions = np.zeros([ROWS, max(map(len, places))], np.int32)
    for row, columns in enumerate(places):
        positions[row, : len(columns)] = columns
    return {**encoded(MASKED), "masked_positions": positions}


def _masks_by_hand(logits):
    """The five likeliest pieces of every mask, with their probabilities."""
    probabilities = tf.nn.softmax(logits).numpy()  # [B, P, V]
    filled = []
    for row, places in enumerate(_mask_places()):
        best = [np.argsort(-probabilities[row, place])[:5] for place in range(len(places))]
        filled.append(
            [[(VOCABULARY[i], probabilities[row, p][i]) for i in ids] for p, ids in enumerate(best)]
        )
    return filled


def _masks_served(outputs):
    piece, probability = outputs["piece"].numpy(), outputs["probability"].numpy()
    return [
        [
            [(p.decode(), q) for p, q in zip(piece[row, n], probability[row, n])]
            for n in range(count)
        ]
        for row, count in enumerate(outputs["mask_count"].numpy())
    ]


def _masked_targets():
    """`film` is the word at the first mask of every row, `e` at the others; some count half."""
    places = _masked_features()["masked_positions"]
    weights = np.where(places > 0, [1.0, 0.5], 0.0)  # [B, P]
    ids = np.where(places > 0, [VOCABULARY.index("film"), VOCABULARY.index("e")], 0)
    return {"masked_ids": ids.astype(np.int32), "masked_weights": weights.astype(np.float32)}


@functools.cache
def _masked_texts():
    """`TEXTS` as `evaluate` masks them, and what is hidden."""
    texts = tf.data.Dataset.from_tensors(tf.constant(TEXTS))
    masked = mask_texts(texts, tokenizer(), LENGTH, seed=0, fresh=False)
    return tf.nest.map_structure(lambda values: values.numpy(), next(iter(masked)))


NO_TEXT_BATCHES = {"datasets of text": Lack("labels of the words of a text are no row of numbers")}

TASKS = {
    "text classification": Task(
        bert_tf.BertTextClassifier,
        encoded(TEXTS),
        {"labels": ["bad", "good"], "max_length": 20},
        TEXTS,
        [("bad", "good")[label] for label in CLASSES],
        CLASSES,
        {"metrics": ["accuracy"]},
        signature=("text",),
        saved={"pooling": "mean_max", "dropout": 0.4},
    ),
    "pair classification": Task(
        bert_tf.BertTextClassifier,
        encoded(TEXTS, PAIRS),
        {"num_classes": 2, "pooling": "mean"},
        (TEXTS, PAIRS),
        CLASSES,
        CLASSES,
        signature=("text", "pair"),
        exported={"pairs": True},
    ),
    "token classification": Task(
        bert_tf.BertTokenClassifier,
        encoded(TEXTS),
        {"labels": WORD_LABELS, "max_length": 20},
        WORDS,
        _label_words(),
        _word_targets(),
        asked=TEXTS,
        answers=lambda model, asked, **batching: [
            [tuple(span)[:3] for span in row] for row in model.tag(asked, **batching)
        ],
        by_hand=_tags_by_hand,
        signature=("text",),
        served=_tags_served,
        lacks=NO_TEXT_BATCHES,
        saved={"use_crf": True, "dropout": 0.3},
    ),
    "question answering": Task(
        bert_tf.BertQuestionAnswerer,
        encoded(TEXTS, CONTEXTS),
        {"max_length": 20, "max_query_length": 8, "doc_stride": 4},
        (TEXTS, CONTEXTS),
        ANSWERS,
        _answer_positions(),
        answers=lambda model, asked, **batching: [
            tuple(answer)[:3] for answer in model.answer(*asked, **batching)
        ],
        by_hand=_answers_by_hand,
        signature=("question", "context"),
        served=_answers_served,
        lacks=NO_TEXT_BATCHES,
        saved={
            "allow_no_answer": True,
            "null_score_diff_threshold": 0.5,
            "n_best_size": 5,
            "max_answer_length": 3,
        },
    ),
    "multiple choice": Task(
        bert_tf.BertMultipleChoice,
        grouped(encoded(np.repeat(TEXTS, 2), sum(CHOICES, [])), 2),
        {"max_length": 20},
        (TEXTS, CHOICES),
        CLASSES,
        CLASSES,
        signature=("prompt", "choices"),
        saved={"dropout": 0.3},
    ),
    "masked LM": Task(
        bert_tf.BertMaskedLM,
        _masked_features(),
        text=TEXTS,
        targets=_masked_targets(),
        of_text=_masked_texts,
        asked=MASKED,
        answers=lambda model, asked, **batching: [
            [[tuple(one) for one in mask] for mask in row]
            for row in model.fill_mask(asked, **batching)
        ],
        by_hand=_masks_by_hand,
        signature=("text",),
        served=_masks_served,
        lacks={
            "own masks": Lack("`fit` on text draws its masks"),
            "datasets to predict": Lack(
                "every text must have a mask, which is seen first", "list of texts"
            ),
        },
        saved={"max_length": 20},
    ),
    "next sentence": Task(
        bert_tf.BertNextSentencePredictor,
        encoded(TEXTS, PAIRS),
        {"max_length": 20},
        (TEXTS, PAIRS),
        CLASSES,
        CLASSES,
        signature=("text", "pair"),
    ),
    "sentence encoding": Task(
        bert_tf.BertSentenceEncoder,
        grouped(encoded([text for row in zip(TEXTS, PAIRS) for text in row]), 2),
        {"normalize": True},
        (TEXTS, PAIRS),
        CLASSES,
        CLASSES,
        {"objective": "classification"},
        asked=TEXTS,
        asked_features=encoded(TEXTS),
        answers=lambda model, asked, **batching: model.encode(asked, **batching),
        signature=("text",),
        served=lambda outputs: outputs["vector"].numpy(),
        lacks={"other losses": Lack("an objective has its own loss", "own loss")},
        saved={"pooling": "max", "max_length": 8},
    ),
    "pre-training": Task(
        bert_tf.BertPretrainer,
        _masked_features(),
        targets={**_masked_targets(), "next_sentence_labels": CLASSES},
        lacks={
            "text": Lack("its texts come masked and in pairs, from bert_tf.data", "data type"),
            "serving": Lack("its answers are of no use", "Received: BertPretrainer"),
        },
        saved={"objective": "mlm_sop"},
    ),
    "features": Task(
        bert_tf.BertFeatureExtractor,
        encoded(TEXTS),
        {"layer_indices": [-1, 0], "combine": "concat"},
        TEXTS,
        lacks={
            "training": Lack("it has no head and no loss", "No loss"),
            "serving": Lack("it is for programs in Python", "Received: BertFeatureExtractor"),
        },
        saved={"layer_indices": [1, 2], "combine": "mean", "max_length": 8},
    ),
}

# Tasks whose class is in the table already, for the full suite.
VARIANTS = ("pair classification", "tagging with a CRF")
TASKS["tagging with a CRF"] = dataclasses.replace(
    TASKS["token classification"],
    options={"labels": WORD_LABELS, "use_crf": True},
    saved={},
    lacks={
        "text": Lack("a path is no maximum of logits; test_token_classifier.py has its answers"),
        "serving": Lack("tests/serving/test_tasks.py has it"),
        "other losses": Lack("it has the loss of paths alone", "over the paths of a sentence"),
    },
)


def tasks(*needed: str):
    """Parametrises a test with the names of the tasks that have all of `needed`."""
    names = [name for name, task in TASKS.items() if not set(needed) & set(task.lacks)]
    marks = dict.fromkeys(VARIANTS, pytest.mark.full)
    return pytest.mark.parametrize(
        "name",
        [pytest.param(name, marks=marks.get(name, ())) for name in names],
        scope="module",  # the tests of a task come one after the other
    )


def assert_same(received, expected, tolerance: float = 1e-5) -> None:
    """Two nests of numbers and strings are the same, their numbers to `tolerance`."""
    tf.nest.assert_same_structure(received, expected)
    for one, other in zip(tf.nest.flatten(received), tf.nest.flatten(expected)):
        if isinstance(one, str):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
