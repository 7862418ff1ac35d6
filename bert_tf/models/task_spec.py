"""What the rest of the package must know about a task."""

import dataclasses
import importlib

from bert_tf.base.json_schema import (
    FLAG,
    SCALAR,
    Kind,
    integer,
    list_of,
    mapping_of,
    may_lack,
    number,
    optional,
    text,
)
from bert_tf.generation.generation_config import GENERATION_ARGUMENTS
from bert_tf.models.task_files import TaskFiles
from bert_tf.models.weight_rows import VECTOR, Row

# A model's outputs, for distillation.
CLASSES = "classes"  # logits of classes
NUMBERS = "numbers"
VECTORS = "vectors"  # without labels

# What an axis of the outputs for one example counts, for inspection.
CLASS_AXIS = "classes"
TOKEN_AXIS = "tokens"
WORD_AXIS = "words"  # the pieces of the vocabulary
END_AXIS = "ends"  # the first and the last token of a span
VECTOR_AXIS = "dimensions"

# Options that several tasks have.
POOLING = may_lack(text())
USE_SCALAR_MIX = may_lack(FLAG)
MAX_LENGTH = optional(integer(least=3))
GENERATION_CONFIG = optional(GENERATION_ARGUMENTS)
ACTIVATION = may_lack(text())
PROMPT_OPTIONS = {"prompts": optional(mapping_of(text())), "default_prompt_name": optional(text())}
DROPOUT = optional(number("in [0, 1)", lambda value: 0 <= value < 1))
CLASS_OPTIONS = {
    "num_classes": optional(integer(least=1)),
    "labels": optional(list_of(SCALAR)),
    "dropout": DROPOUT,
}


@dataclasses.dataclass(frozen=True)
class Head:
    """A head of a model and the names of its layers in checkpoints.

    Attributes:
        name: Its name; tasks whose heads have the same name read each other's checkpoints.
        rows: Its layers; `ours` is relative to the head's own layer.
        block_rows: The layers of each of its `blocks`, with `{index}` in their names in files;
            `ours` is relative to the block.
    """

    name: str
    rows: tuple[Row, ...]
    block_rows: tuple[Row, ...] = ()


def layer_head(name: str, kind: str, *names_in_files: str | None) -> Head:
    """Returns a head that is one layer, whose names in files are in the order of `Row`."""
    return Head(name, (Row(kind, "", *names_in_files),))


# The weights of the layers, for `use_scalar_mix`; the names in files are our own.
SCALAR_MIX = Head(
    "scalar_mix",
    tuple(
        Row(VECTOR, name, f"scalar_mix.{name}", f"scalar_mix/{name}")
        for name in ("scalars", "gamma")
    ),
)


@dataclasses.dataclass(frozen=True)
class TaskInput:
    """An input of a model in addition to its tokens, in the same dictionary.

    Attributes:
        dtype: The name of its dtype.
        shape: Its shape after the batch. None is any size: batches are padded to their largest.
        meaning: What it is, for those who use an exported model.
        is_given: Whether users pass its values after the texts, `(texts, values)`; its shape is
            then known. Else the task makes them.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    meaning: str = ""
    is_given: bool = False


@dataclasses.dataclass(frozen=True)
class Answers:
    """How a program, such as Beam's `RunInference`, asks a model about examples.

    Attributes:
        method: The model's method. It takes examples and a `token_budget`, and returns an answer
            for each.
        texts: The numbers of texts that an example may have.
        by_column: Whether the method takes each text of an example as an argument of its own; else
            as one, the texts or a tuple of the firsts and the seconds.
        are_scores: Whether the answer is one of its `scores`, that of a label that the user names.
    """

    method: str
    texts: tuple[int, ...] = (1,)
    by_column: bool = False
    are_scores: bool = False


# Forms of the server's requests that a task's default signature can answer.
EMBEDDINGS = "embeddings"  # from `text` to `vector`
RERANK = "rerank"  # from `query` and `document` to `score`


@dataclasses.dataclass(frozen=True, eq=False)
class TaskSpec:
    """All that others must know of a task. It is read without TensorFlow, so it holds names.

    Attributes:
        name: Its name, for programs.
        model: The class in its `model.py`.
        architectures: Hugging Face's classes with the same heads; the first is the one written.
        module: The task's package; None for `bert_tf.tasks.<name>`, whose model is a public name of
            `bert_tf`.
        heads: Attribute of the model -> its head.
        optional_heads: Heads that a model may have and Hugging Face's class has not, as `heads`.
        inputs: The inputs of the model other than tokens, by their names in the dictionary.
        uses_pooler: Whether it computes with BERT's pooler, the dense layer on the first token.
        serving: The class in its `serving.py`; None if it is not exported.
        files: The class in its `files.py`, or `module.Class`, a subclass of `TaskFiles`; None if it
            has no files apart from weights, tokenizer and options.
        distilled_as: What a model can learn from another one of the task: `CLASSES`, `NUMBERS` or
            `VECTORS`; None if it cannot.
        output_axes: What the axes of the outputs count for the tokens `[B, T]` of one text or pair,
            after B; None if there are no such outputs.
        reads_pairs: Whether a row can be a pair of texts.
        answers: The methods that Beam's programs offer -> how they ask the model.
        forms: The forms of requests that the server answers with an exported model, in addition to
            those of its signatures: `EMBEDDINGS`, `RERANK`.
        options: The constructor's arguments that checkpoints store, apart from `max_length` -> the
            kind of their values.

    Example:
        >>> spec = bert_tf.tasks.spec_of("BertQuestionAnswerer")
        >>> spec.architectures, spec.uses_pooler
        (('BertForQuestionAnswering',), False)
    """

    name: str
    model: str
    architectures: tuple[str, ...]
    module: str | None = None
    heads: dict[str, Head] = dataclasses.field(default_factory=dict)
    optional_heads: dict[str, Head] = dataclasses.field(default_factory=dict)
    inputs: dict[str, TaskInput] = dataclasses.field(default_factory=dict)
    uses_pooler: bool = True
    serving: str | None = None
    files: str | None = None
    distilled_as: str | None = None
    output_axes: tuple[str, ...] | None = None
    reads_pairs: bool = True
    answers: dict[str, Answers] = dataclasses.field(default_factory=dict)
    forms: tuple[str, ...] = ()
    options: dict[str, Kind] = dataclasses.field(default_factory=dict)

    @property
    def given_inputs(self) -> dict[str, TaskInput]:
        """The inputs that users pass after the texts."""
        return {name: each for name, each in self.inputs.items() if each.is_given}

    @property
    def model_module(self) -> str:
        """The module of the model's class."""
        return f"{self.module or f'bert_tf.tasks.{self.name}'}.model"

    def model_class(self) -> type:
        """Returns the class of its models."""
        return self._class("model", self.model)

    def serving_class(self) -> type | None:
        """Returns what `export` writes: a subclass of `ServingModule`."""
        return self.serving and self._class("serving", self.serving)

    def task_files(self) -> TaskFiles:
        """Returns what reads and writes its own files."""
        return TaskFiles() if self.files is None else self._class("files", self.files)()

    def _class(self, module, name):
        package = self.model_module.removesuffix(".model")
        module, _, name = name.rpartition(".") if "." in name else (module, "", name)
        return getattr(importlib.import_module(f"{package}.{module}"), name)
