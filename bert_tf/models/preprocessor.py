"""Text and labels to batches, text to tokens in the graph, outputs of a model to answers."""

import dataclasses
import inspect
import weakref
from collections.abc import Callable, Collection, Set
from typing import Any, ClassVar

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import hooks
from bert_tf.base.keras_files import deserialized
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.batches import TOKEN_BUDGET
from bert_tf.inputs.columns import (
    PAIRS_ARE,
    TextColumns,
    as_columns,
    column_names,
    holds_lists,
    holds_text,
    is_container,
    is_list,
    is_missing,
    is_text,
)
from bert_tf.inputs.labels import number_rows, row_weights
from bert_tf.inputs.streams import batches_of_text, materialize, stream_batches
from bert_tf.inputs.token_rows import (
    FewTexts,
    TokenizedTexts,
    TokenRows,
    batches_of_numbers,
    pooled_windows,
)
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.training.model_options import fixed_names

DEFAULT_POSITIONS = 512  # google-research/bert


class Held:
    """An option of a model that its preprocessor holds, as an attribute of the model.

    While a model is made around a given preprocessor, an argument of the constructor must be left
    out, or be what the preprocessor holds. Without a preprocessor, it is None and cannot be set.
    """

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, model, owner=None):
        if model is None:
            return self
        held = vars(model).get("_preprocessor")
        return None if held is None else getattr(held, self.name)

    def __set__(self, model, value):
        if vars(model).get("_preprocessor") is None:
            received = f"{self.name}={value!r:.200} for a {type(model).__name__}"
            raise user_error(f"`{self.name}`", "be set on a model that reads texts", received)
        if model.holds_given_options and not model.built:
            held = getattr(model._preprocessor, self.name)
            parameter = inspect.signature(type(model).__init__).parameters.get(self.name)
            default = None if parameter is None else parameter.default
            if held is not None:
                rule = "must be left out with a `preprocessor`, which holds it"
                is_left_out = value is None or value in (default, held)
                require(is_left_out, rule, UserError, **{self.name: value})
                return
        setattr(model._preprocessor, self.name, value)


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False)
class Preprocessor:
    """Turns texts into tokens, labels into numbers and outputs into answers.

    A `TaskModel` makes one or is given one; `TaskModel` says which inputs it reads. Setting an
    argument takes effect at once, or is refused if the model is built with it or its
    `check_options` refuses the value.

    A task overrides `read_columns` if an example is not a text or a pair, `targets` and
    `graph_targets` for its labels, `training_rows` and `encode` if examples become windows,
    and `postprocess` and `decode` for the model's outputs. A subclass with further arguments is a
    dataclass too; the model has an attribute `name = Held()` for each.

    Args:
        tokenizer: The `BertTokenizer`; without one only token dictionaries are accepted.
        max_length: The maximum number of tokens of a sequence, `[CLS]` and `[SEP]` included. None
            means the number of the model's positions.

    Attributes:
        spec: The `TaskSpec` that declares the class.
        examples: What an example is, as the spec declares it.
        inputs: The inputs that follow the texts of an example, the `given_inputs` of the spec.
        max_positions: The number of the model's positions.
        has_sparse_labels: Whether the loss takes the ids of classes.
        has_static_shapes: Whether all batches are padded to one length, for XLA.
        no_duplicates: Whether no text may be in two examples of a batch to train on.
        texts_per_label: How often a label is at least in a batch to train on that has it, or None.
        packs_tokens: Returns whether the model computes real tokens only. If not, a token budget
            counts padding.
        packs_under_xla: Whether a token budget may have the model compute real tokens only under
            XLA too.
        changes: The number of times that an argument was set.
        followed: The names of fields of a subclass with `init=False`. They have the values of the
            model's attributes of the same name.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> preprocessor = classifier.preprocessor
        >>> rows = preprocessor.encode(preprocessor.read(texts))
        >>> sorted(rows.batch([0, 1]))
        ['padding_mask', 'segment_ids', 'token_ids']
    """

    tokenizer: Any = None
    max_length: int | None = None
    max_positions: int = dataclasses.field(default=DEFAULT_POSITIONS, init=False, repr=False)
    has_sparse_labels: bool = dataclasses.field(default=True, init=False, repr=False)
    has_static_shapes: bool = dataclasses.field(default=False, init=False, repr=False)
    no_duplicates: bool = dataclasses.field(default=False, init=False, repr=False)
    texts_per_label: int | None = dataclasses.field(default=None, init=False, repr=False)

    packs_tokens: ClassVar[Callable[[], bool]] = staticmethod(lambda: True)
    packs_under_xla: ClassVar[bool] = True
    changes: ClassVar[int] = 0

    def __post_init__(self):
        spec = hooks.preprocessor_spec(type(self))
        own = {"spec": spec, "examples": spec.examples, "inputs": spec.given_inputs}
        own_fields = dataclasses.fields(self)[len(dataclasses.fields(Preprocessor)) :]
        followed = tuple(field.name for field in own_fields if not field.init)
        vars(self).update(own, followed=followed, _models=weakref.WeakSet())

    def __setattr__(self, name, value):
        models = [model for model in vars(self).get("_models", ()) if model.built]
        for model in models:
            self._require_free(model, name, value)
        before = getattr(self, name, None)
        super().__setattr__(name, value)
        try:
            for model in models:
                model.check_options()
        except Exception:
            super().__setattr__(name, before)
            raise
        vars(self)["changes"] = self.changes + 1

    def _require_free(self, model, name, value):
        """Raises `UserError` for an argument that a model is built with."""
        names = [n for n in self.arguments() if n not in fixed_names(type(model))]
        if name not in names:
            expected = f"be one of {names}; all else follows from the model and from `compile`"
            received = f"{name}={value!r:.200}"
            raise user_error("What is set in a model's preprocessor", expected, received)

    @classmethod
    def arguments(cls) -> list[str]:
        """Returns the names of the constructor's arguments."""
        return [field.name for field in dataclasses.fields(cls) if field.init]

    def follow(self, **state: Any) -> None:
        """Sets attributes that depend on the model and on `compile`, or are given another form."""
        vars(self).update(state)

    def serve(self, model: Any, before: "Preprocessor | None" = None) -> None:
        """Becomes the preprocessor of a model, in place of the one before.

        Raises:
            UserError: If an argument does not fit the model.
        """
        if before is not None:
            for name in set(self.arguments()) & fixed_names(type(model)):
                held, own = getattr(before, name), getattr(self, name)
                rule = f"must be {held!r}, with which the model is built"
                require(own in (None, held), rule, UserError, **{f"preprocessor.{name}": own})
                vars(self)[name] = held
            model.check_options()
        self._models.add(model)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the constructor, serialized."""
        config = {name: getattr(self, name) for name in self.arguments()}
        return {**config, "tokenizer": keras.saving.serialize_keras_object(self.tokenizer)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Preprocessor":
        """Returns the preprocessor that `get_config` described."""
        config = dict(config)
        if config["tokenizer"] is not None:
            config["tokenizer"] = deserialized(config["tokenizer"], Tokenizer, "tokenizer")
        return cls(**config)

    @property
    def max_sequence_length(self) -> int:
        """The maximum number of tokens of a sequence."""
        return self.max_length or self.max_positions

    @property
    def static_length(self) -> int | None:
        """The length that all batches are padded to, for XLA; None pads to the longest sequence."""
        return self.max_sequence_length if self.has_static_shapes else None

    def read(self, x: Any) -> Any:
        """Returns raw text as `TextColumns` or a `tf.data.Dataset`, and anything else unchanged.

        Raises:
            UserError: If `x` holds neither text nor tokens, the texts have no order, or for the
                reasons of `read_columns`.
        """
        if isinstance(x, tf.data.Dataset) or (isinstance(x, dict) and x):
            return x
        if isinstance(x, Set):
            raise UserError(f"Texts must be in an order. Received: a {type(x).__name__}.")
        if isinstance(x, tuple) and not isinstance(x, TextColumns):
            x = tuple(materialize(column, self.is_example) for column in x)
        is_whole = isinstance(x, Collection) or hasattr(x, "__array__")
        if not is_whole or isinstance(x, keras.utils.PyDataset):
            columns = None if self.examples.are_cut else self.read_columns
            x = batches_of_text(materialize(x, self.is_example), columns, self.targets)
            if isinstance(x, tf.data.Dataset):
                return x
        if holds_text(x) or (self.examples.are_lists and holds_lists(x)):
            return self.read_columns(x)
        if x is None or not tf.nest.flatten(x):
            expected = "be texts or a token dictionary, which `tokenize(texts)` returns"
            raise user_error("`x`", expected, f"x={x!r}")
        return x

    def read_examples(self, x: Any) -> TextColumns:
        """Returns raw text that does not come in batches as `TextColumns`."""
        x = x if isinstance(x, Collection) else materialize(x, self.is_example)
        return self.read_columns(x)

    def read_columns(self, x: Any) -> TextColumns:
        """Returns raw text as arrays with a row for every example: one, or two for pairs.

        Raises:
            UserError: If an example has a wrong number of texts, or a row (named) is not text.
        """
        columns = as_columns(x, self.text_errors, self.inputs)
        if len(columns) == 1 and not columns.num_rows:
            given = columns.inputs
            columns = TextColumns(columns * self.examples.texts[0])
            columns.inputs = given
        count, allowed = len(columns), self.examples.texts
        if count not in allowed and (... not in allowed or count < allowed[0]):
            names = column_names(x)
            form = self._form if names is None else f"The columns are {names}; pass one."
            counts = ("more" if count is ... else str(count) for count in self.examples.texts)
            expected = f"have {' or '.join(counts)} texts"
            received = f"{len(columns)} texts in an example. {form}"
            raise user_error("An example of this task", expected, received)
        return columns

    @property
    def text_errors(self) -> str:
        """What to do with text that is not UTF-8: the tokenizer's `errors`."""
        return getattr(self.tokenizer, "errors", "strict")

    @property
    def _form(self):
        """What errors say about the right form of examples."""
        return self.examples.form or PAIRS_ARE

    def is_example(self, item: Any) -> bool:
        """Returns whether an item of a generator is one example: strings, or a list of them."""
        if self.examples.are_lists:
            return is_text(item) or is_list(item)
        if isinstance(item, tuple) and item:
            return all(map(is_text, item))
        return is_text(item) or is_missing(item)

    def targets(self, y: Any, x: Any) -> Any:
        """Returns labels as `fit` takes them: an array with a row for every example.

        Args:
            y: What the user passed. None is returned as it is.
            x: What `read` returned.

        Raises:
            DataError: If a label is missing or unknown; its row is in the message.
        """
        return number_rows(y) if is_container(y) and not isinstance(y, tuple) else y

    def graph_targets(
        self, spec: tf.TensorSpec, of_text: bool
    ) -> Callable[[tf.Tensor], tf.Tensor] | None:
        """Returns a graph function that turns a dataset's labels into those of the loss, or None.

        `spec` is that of the labels; `of_text` whether they belong to text, not to token
        dictionaries.

        Raises:
            UserError: If the task does not take labels of this type in a dataset.
        """
        if spec.dtype == tf.string:
            received = "strings. Pass `preprocessor.targets(labels, None)`, or texts in memory."
            raise user_error("Labels in a dataset of this task", "be numbers", received)
        return None

    def require_tokenizer(self) -> None:
        """Raises `UserError` if there is no tokenizer."""
        if self.tokenizer is None:
            raise UserError(
                "The model was made without a tokenizer, so it takes token dictionaries only. "
                "Received: text. Pass `tokenizer=BertTokenizer(vocab_file)`."
            )

    def tokenize(self, *texts: Any) -> dict[str, tf.Tensor]:
        """Returns strings `[B]`, for each text of an example, as the model takes them.

        Raises:
            UserError: If there is no tokenizer, or an example has more than two texts.
        """
        self.require_tokenizer()
        if len(texts) > 2:
            received = f"{len(texts)} texts in an example. {self._form}"
            raise user_error("Text", "be single texts or pairs", received)
        return self.tokenizer(*texts, max_length=self.max_sequence_length)

    def tokens_of(self, inputs: Any) -> dict[str, tf.Tensor]:
        """Converts the strings that a model is called with to a token dictionary.

        Raises:
            UserError: See `tokenize`.
        """
        columns = self.tensor_columns(inputs)
        count = len(columns) - len(self.inputs)
        columns, given = columns[:count], dict(zip(self.inputs, columns[count:], strict=True))
        given = {name: tf.cast(value, self.inputs[name].dtype) for name, value in given.items()}
        return {**self.tokenize(*columns), **given}

    def tensor_columns(self, inputs: Any) -> tuple[tf.Tensor, ...]:
        """Returns one string tensor `[B]` for each text of an example, then the given inputs."""
        tensors = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        if not all(tf.is_tensor(tensor) for tensor in tensors):
            columns = self.read_columns(inputs)
            return tuple(map(tf.convert_to_tensor, (*columns, *columns.inputs.values())))
        if len(tensors) == 1 and tensors[0].shape.rank == 0:
            return (tensors[0][tf.newaxis],)  # one text
        if len(tensors) == 1 and tensors[0].shape.rank == 2 and tensors[0].shape[1] is not None:
            return tuple(tf.unstack(tensors[0], axis=1))  # [B, K] -> K times [B]
        return tensors

    def batches(
        self,
        source: TokenRows | tf.data.Dataset,
        training: bool,
        labels: tuple[Any, ...] = (),
        numbers: tf.data.Dataset | None = None,
        seed: int = 0,
    ) -> tf.data.Dataset:
        """Returns batches `(tokens, labels, weights)` of texts.

        Args:
            source: Rows of `training_rows`; or batches of text, with labels and weights, if any.
            training: Whether the batches are for training, not for evaluation.
            labels: What `training_rows` returned with the rows.
            numbers: A dataset of the rows of each batch, int64 `[B]`, and their epoch.
            seed: The seed of what is drawn for training on rows.

        Raises:
            UserError: If the elements of a dataset are not batches of strings.
        """
        if numbers is None:
            return stream_batches(self, source)
        return batches_of_numbers(source, labels, numbers, self.static_length)

    def training_rows(
        self, columns: TextColumns, y: Any, sample_weight: Any
    ) -> tuple[TokenRows, tuple[Any, ...]]:
        """Returns the rows to train on, and arrays of their labels and weights, if any.

        Raises:
            UserError: If there is no text, or not one label and weight for each.
        """
        num_rows = columns.num_rows
        if not num_rows:
            raise UserError("`x` must have at least one text. Received: none.")
        if y is None:
            if sample_weight is not None:
                raise UserError("`y` must be given with `sample_weight`. Received: y=None")
            return self.example_rows(columns), ()
        labels = (np.asarray(y),)
        if len(labels[0]) != num_rows:
            received = f"{len(labels[0])} rows."
            raise user_error("`y`", f"have a row for every text: {num_rows}", received)
        if sample_weight is not None:
            labels = (*labels, row_weights(sample_weight, num_rows))
        return self.example_rows(columns), labels

    def example_rows(self, columns: TextColumns) -> TokenRows:
        """Returns one row for every example, even if it has several sequences."""
        rows = TokenizedTexts.of(self.tokenizer, columns, self.max_sequence_length)
        rows.inputs = columns.inputs
        return rows

    def encode(self, columns: TextColumns, window_stride: int | None = None) -> TokenRows:
        """Returns the sequences to compute: one for each text, or windows at a stride."""
        self.require_tokenizer()
        if window_stride is None:
            few = FewTexts(self.tokenizer, columns, self.max_sequence_length)
            if len(few) and few.most_tokens <= TOKEN_BUDGET and not columns.inputs:
                return few
            return Preprocessor.example_rows(self, columns)
        options = self.max_sequence_length, window_stride
        rows = TokenizedTexts.of_windows(self.tokenizer, columns[0], *options)
        rows.inputs = columns.inputs
        return rows

    def postprocess(self, values: Any, rows: TokenRows, columns: TextColumns, pooling: str) -> Any:
        """Joins the outputs of windows and shapes them as `predict` documents.

        Args:
            values: The model's outputs, in the order of the rows.
            rows: What `encode` returned.
            columns: The texts.
            pooling: How the outputs of a text's windows are pooled: "mean" or "max".
        """
        if rows.examples is None:
            return values
        return pooled_windows(values, rows.examples, pooling)

    def decode(self, values: Any, rows: TokenRows, columns: TextColumns) -> Any:
        """Returns the answer to every example; the arguments are those of `postprocess`.

        Settings, such as question answering's `n_best_size`, are attributes of the preprocessor.

        Raises:
            UserError: If the task has none.
        """
        raise UserError(
            "`decode` must be a method of the task's preprocessor, which turns outputs into "
            f"answers. Received: {type(self).__name__} without it. Write `decode(self, values, "
            "rows, columns)`, or call `predict` for the outputs themselves."
        )

    def require_windows(self, columns: TextColumns, stride: int) -> None:
        """Raises `UserError` where texts cannot become windows."""
        if len(columns) > 1:
            expected = "be None unless the examples are single texts"
            received = f"window_stride={stride!r}, {len(columns)} texts in an example"
            raise user_error("`window_stride`", expected, received)
        size = self.max_sequence_length - 2
        is_valid = isinstance(stride, int) and 1 <= stride <= size
        rule = f"must be in [1, {size}], the tokens of a window"
        require(is_valid, rule, window_stride=stride)
