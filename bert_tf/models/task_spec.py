"""What the rest of the package must know about a task."""

import dataclasses
import importlib
from typing import Any

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
from bert_tf.models.weight_rows import VECTOR, Row, layer_row

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
LSTM_OPTIONS = {
    "lstm_units": optional(list_of(integer(least=1), least=1)),
    "lstm_bidirectional": may_lack(FLAG),
}
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
    tuple(layer_row(VECTOR, name, f"scalar_mix.{name}") for name in ("scalars", "gamma")),
)

# The cells of each layer, for `lstm_units`. The other formats have no names for them: a program
# that left the LSTM out would apply the classifier to vectors for which it was not trained.
LSTM = Head(
    "lstm",
    (),
    tuple(
        Row(VECTOR, f"{direction}.{name}", None, None)
        for direction in ("forward", "backward")
        for name in ("kernel", "recurrent_kernel", "bias")
    ),
)


@dataclasses.dataclass(frozen=True)
class TaskInput:
    """An input of a model in addition to its tokens, in the same dictionary.

    Attributes:
        dtype: The name of its dtype.
        shape: Its shape without the batch. None means any size: batches are padded to their
            largest.
        meaning: A description for those who use an exported model.
        is_given: Whether users pass its values after the texts, `(texts, values)`; its shape must
            then be known. If not, the task makes the values.
        sample: The value of its entries when models are compared; None if the model can also
            compute without it.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()
    meaning: str = ""
    is_given: bool = False
    sample: int | None = None


@dataclasses.dataclass(frozen=True)
class Examples:
    """What an example of a task is.

    Attributes:
        texts: The numbers of texts that it may have, the smallest first; `(2, ...)` means two or
            more.
        form: The explanation of the right form in errors; None explains single texts and pairs.
        are_lists: Whether an example may be a list of strings.
        are_cut: Whether an example may become several windows, so that the texts of all batches of
            a generator or a `PyDataset` are read together.
        are_predicted_in_datasets: Whether `predict` takes a `tf.data.Dataset` of text.
    """

    texts: tuple[Any, ...] = (1, 2)
    form: str | None = None
    are_lists: bool = False
    are_cut: bool = False
    are_predicted_in_datasets: bool = True


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a task.

    Attributes:
        are_required: Whether training needs labels although no loss is compiled.
        are_in_texts: Whether the labels of raw text are made from the texts.
        no_class_weights: The reason why `fit` refuses `class_weight`, for a model without classes.
    """

    are_required: bool = False
    are_in_texts: bool = False
    no_class_weights: str | None = None


NEXT_WORDS = Labels(are_required=True, are_in_texts=True, no_class_weights="the classes are words")


@dataclasses.dataclass(frozen=True)
class Serving:
    """The inputs and outputs of the signatures that `export` writes, with their meanings.

    Attributes:
        module: The `ServingModule` in the task's `serving.py`, or `module.Class`, or a path.
        outputs: The outputs for text: name -> meaning. Not all models have all of them.
        texts: The text inputs, string `[B]`: name -> meaning.
        token_outputs: The outputs for token ids; None: the same as for text.
        lists: The names of the texts that are lists of strings, `[B, C]`.
        has_sequences: Whether the tokens of an example are several sequences, `[B, K, T]`.
        takes_pairs: Whether the module's second argument can make it for pairs of texts.
        samples: Warm-up requests: inputs by name, in which `[MASK]` is the mask token. None
            for sentences.
        details: Entries of the model's description -> the attributes of the model.
        further: Further signatures, each a method of the module -> the meanings of its texts and of
            its outputs.
    """

    module: str
    outputs: dict[str, str]
    texts: dict[str, str] = dataclasses.field(default_factory=lambda: {"text": "The text, UTF-8."})
    token_outputs: dict[str, str] | None = None
    lists: tuple[str, ...] = ()
    has_sequences: bool = False
    takes_pairs: bool = False
    samples: tuple[dict[str, list], ...] | None = None
    details: dict[str, str] = dataclasses.field(default_factory=dict)
    further: dict[str, tuple[dict[str, str], dict[str, str]]] = dataclasses.field(
        default_factory=dict
    )


@dataclasses.dataclass(frozen=True)
class Answers:
    """How a program, such as Beam's `RunInference`, calls a model with examples.

    Attributes:
        method: The model's method. It takes examples and a `token_budget`, and returns an answer
            for each.
        texts: The numbers of texts that an example may have.
        by_column: Whether the method takes each text of an example as a separate argument. If not,
            it takes one argument, the texts or a tuple of the first and the second texts.
        are_scores: Whether the answer is a score: the one of a label that the user names.
    """

    method: str
    texts: tuple[int, ...] = (1,)
    by_column: bool = False
    are_scores: bool = False


# Forms of the server's requests that a task's default signature can answer.
EMBEDDINGS = "embeddings"  # from `text` to `vector`
SPARSE_EMBEDDINGS = "embed_sparse"  # from `text` to `term_id` and `term_weight`
TOKEN_EMBEDDINGS = "token_embeddings"  # from `text` to `vectors`, of queries and of documents
RERANK = "rerank"  # from `query` and `document` to `score`


@dataclasses.dataclass(frozen=True, eq=False)
class TaskSpec:
    """Declares a task. It is read without TensorFlow, so it names classes instead of holding them.

    Attributes:
        name: Its name, for programs.
        model: The class in its `model.py`.
        architectures: Hugging Face's classes with the same heads; files get the first.
        module: The task's package; None for `bert_tf.tasks.<name>`, whose model is a public name of
            `bert_tf`.
        heads: Attribute of the model -> its head.
        optional_heads: Heads that a model may have and Hugging Face's class lacks, like `heads`.
        preprocessor: The class in its `preprocessor.py`, or the path of a class; None for a model
            without text.
        examples: What an example is.
        labels: What its labels are.
        inputs: The inputs of the model other than tokens, by their names in the dictionary.
        uses_pooler: Whether it computes with BERT's pooler, the dense layer on the first token.
        serving: The signatures of its exported models; None if it is not exported.
        files: The class in its `files.py`, or `module.Class`, a subclass of `TaskFiles`; None if it
            has no files apart from weights, tokenizer and options.
        distilled_as: The outputs that a model can learn from another model of the task: `CLASSES`,
            `NUMBERS` or `VECTORS`; None if it cannot.
        backbone_options: Arguments of the backbone's call: the attention rule, such as
            `{"causal": True}`, and further outputs, such as `{"output_hidden_states": True}`.
        decoded_by: The model's method that turns outputs into answers; None for the preprocessor's
            `decode`. It takes examples, `batch_size`, `token_budget` and `verbose`.
        token_axis: The axis of the outputs with one entry for each token, which `predict` pads to
            `max_length`; None if there is none.
        token_padding: The value of that padding.
        output_axes: What each axis of the outputs after B counts, for the tokens `[B, T]` of one
            text or pair; None if there are no such outputs.
        reads_pairs: Whether an example can be a pair of texts.
        answers: The methods that Beam's programs offer -> how they call the model.
        forms: The forms of requests that the server answers with an exported model, in addition to
            those of its signatures: `EMBEDDINGS`, `RERANK` and so on.
        options: The constructor's arguments that checkpoints store, apart from `max_length` -> the
            kind of their values.
        built_with: The arguments that only the constructor reads: setting one later is refused.
        packs_under_xla: Whether a token budget has the model compute real tokens only under XLA
            too: not if it calls its backbone several times or with tokens that are not attended to.

    Example:
        >>> spec = bert_tf.tasks.spec_of("BertQuestionAnswerer")
        >>> spec.architectures, spec.uses_pooler
        (('BertForQuestionAnswering',), False)
    """

    name: str
    model: str
    architectures: tuple[str, ...]
    module: str | None = None
    preprocessor: str | None = "bert_tf.models.preprocessor.Preprocessor"
    examples: Examples = Examples()
    labels: Labels = Labels()
    heads: dict[str, Head] = dataclasses.field(default_factory=dict)
    optional_heads: dict[str, Head] = dataclasses.field(default_factory=dict)
    inputs: dict[str, TaskInput] = dataclasses.field(default_factory=dict)
    uses_pooler: bool = True
    serving: Serving | None = None
    files: str | None = None
    distilled_as: str | None = None
    backbone_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    decoded_by: str | None = None
    token_axis: int | None = None
    token_padding: float = 0
    output_axes: tuple[str, ...] | None = None
    reads_pairs: bool = True
    answers: dict[str, Answers] = dataclasses.field(default_factory=dict)
    forms: tuple[str, ...] = ()
    options: dict[str, Kind] = dataclasses.field(default_factory=dict)
    built_with: tuple[str, ...] = ()
    packs_under_xla: bool = True

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

    def preprocessor_class(self) -> type | None:
        """Returns the class of its models' preprocessors."""
        return self.preprocessor and self._class("preprocessor", self.preprocessor)

    def serving_class(self) -> type | None:
        """Returns the class that `export` writes, a subclass of `ServingModule`."""
        return self.serving and self._class("serving", self.serving.module)

    def task_files(self) -> TaskFiles:
        """Returns what reads and writes its own files."""
        return TaskFiles() if self.files is None else self._class("files", self.files)()

    def path(self, module: str, name: str) -> str:
        """Returns the path of a class in a module of the task, or the path that the name is."""
        name = name if "." in name else f"{module}.{name}"
        return name if name.count(".") > 1 else self.model_module.removesuffix("model") + name

    def _class(self, module, name):
        module, _, name = self.path(module, name).rpartition(".")
        return getattr(importlib.import_module(module), name)
