"""How a task reads what users pass: its text as columns, its labels as arrays."""

from collections.abc import Callable, Set
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import is_container, is_missing, is_text
from bert_tf.errors import UserError
from bert_tf.models.label_inputs import number_rows
from bert_tf.models.text_inputs import PAIRS_ARE, TextColumns, as_columns, holds_text
from bert_tf.models.text_streams import batches_of_text, collected
from bert_tf.training.losses.sparse_crossentropy import SparseCrossentropy


class RawInputs:
    """The part of a task model that reads raw text, labels and class weights.

    `TaskModel` says what the rule is. A task overrides `read_columns` where an example is no text
    or pair, `plain_targets` and `graph_targets` for its labels.
    """

    # How many texts an example may have; None: any number.
    texts_per_example: tuple[int, ...] | None = (1, 2)
    # What errors say of the right form.
    example_form = PAIRS_ARE
    # Whether text may come in batches; where examples become windows, all are needed at once.
    takes_batches_of_text = True

    def text_columns(self, x: Any) -> tuple[np.ndarray, ...]:
        """Raw text as arrays with a row for every example: one, or two for pairs."""
        return tuple(self.read_columns(x))  # `tf.data` takes no class of its own for a tuple

    def read_columns(self, x: Any) -> TextColumns:
        """Raw text as arrays with a row for every example: one, or two for pairs.

        Raises:
            UserError: If an example has another number of texts than the task takes, or a row is
                no text; its number is named.
        """
        columns = as_columns(x, self._text_errors())
        allowed = self.texts_per_example
        if allowed is not None and len(columns) not in allowed:
            raise UserError(
                f"{type(self).__name__} takes {' or '.join(map(str, allowed))} texts in an "
                f"example. Received: {len(columns)} texts in an example. {self.example_form}"
            )
        return columns

    def _text_errors(self) -> str:
        """What to do with text that is not UTF-8: the tokenizer's `errors`."""
        return getattr(self.tokenizer, "errors", "strict")

    def raw(self, x: Any) -> Any:
        """`x` as `TextColumns` or a `tf.data.Dataset` of strings where it is raw text.

        What Keras takes, such as token dictionaries, comes back as it is.
        """
        if x is None or isinstance(x, (dict, tf.data.Dataset)):
            return x
        if isinstance(x, Set):
            raise UserError(f"Texts must be in an order. Received: a {type(x).__name__}.")
        if isinstance(x, tuple) and not isinstance(x, TextColumns):
            x = tuple(collected(column, self.is_example) for column in x)
        columns = self.read_columns if self.takes_batches_of_text else None
        x = batches_of_text(collected(x, self.is_example), columns, self.plain_targets)
        if isinstance(x, tf.data.Dataset) or not holds_text(x):
            return x
        return self.read_columns(x)

    @staticmethod
    def is_example(item: Any) -> bool:
        """Whether an item of a generator is one example: a string, or a tuple of them."""
        if isinstance(item, tuple) and item:
            return all(map(is_text, item))
        return is_text(item) or is_missing(item)

    def plain_targets(self, y: Any, x: Any) -> Any:
        """Labels as `fit` takes them: an array with a row for every example.

        Args:
            y: What the user passed; None stays.
            x: What `raw` gave.

        Raises:
            DataError: If a label is missing or none that the task knows; its row is named.
        """
        return number_rows(y) if is_container(y) and not isinstance(y, tuple) else y

    def graph_targets(self, spec: tf.TensorSpec) -> Callable[[tf.Tensor], tf.Tensor] | None:
        """What turns the labels of a `tf.data.Dataset` into those that the loss takes.

        Args:
            spec: Shape and dtype of the labels of a batch.

        Returns:
            A function in the graph; None where the labels are right as they are.
        """
        return None

    def has_sparse_loss(self) -> bool:
        """Whether the compiled loss takes class ids; so does the default."""
        loss = getattr(self, "loss", None)
        sparse = (keras.losses.SparseCategoricalCrossentropy, SparseCrossentropy)
        if loss is None or isinstance(loss, sparse):
            return True
        return str(getattr(loss, "__name__", loss)).startswith("sparse_")

    def tensor_columns(self, inputs) -> tuple[tf.Tensor, ...]:
        """Texts that the model was called with: one string tensor `[B]` for each of an example."""
        tensors = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        if not all(tf.is_tensor(tensor) for tensor in tensors):
            return tuple(map(tf.convert_to_tensor, self.read_columns(inputs)))
        if len(tensors) == 1 and tensors[0].shape.rank == 0:
            return (tensors[0][tf.newaxis],)  # one text
        if len(tensors) == 1 and tensors[0].shape.rank == 2 and tensors[0].shape[1] is not None:
            return tuple(tf.unstack(tensors[0], axis=1))  # [B, K] -> K times [B]
        return tensors

    def require_batches_of_text(self, dataset):
        spec = dataset.element_spec
        features = spec[0] if isinstance(spec, tuple) else spec
        if isinstance(features, dict):
            raise UserError(
                "Text in a dataset must be strings [B], or a tuple of them for pairs. Received: a "
                f"dictionary of {sorted(features)}. Pass `dataset.map(lambda row: row[...])`."
            )
        if any(spec.shape.rank == 0 for spec in tf.nest.flatten(features)):
            raise UserError(
                "A dataset of text must yield batches, strings [B]. Received: single strings. "
                "Pass `dataset.batch(32)`."
            )

    def with_plain_labels(self, dataset):
        spec = dataset.element_spec
        if not isinstance(spec, tuple) or len(spec) < 2 or not isinstance(spec[1], tf.TensorSpec):
            return dataset
        targets = self.graph_targets(spec[1])
        if targets is None:
            return dataset
        return dataset.map(
            lambda features, labels, *rest: (features, targets(labels), *rest),
            num_parallel_calls=tf.data.AUTOTUNE,
            deterministic=True,
        )
