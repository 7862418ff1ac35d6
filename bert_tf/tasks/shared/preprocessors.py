"""What several tasks share of reading examples: lists of items, sources with targets, K texts.

Glossary: `n` examples, `B` examples of a batch, `K` texts or pairs of an example, `M` items of all
lists, `T` tokens of a row.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require
from bert_tf.inputs.columns import TextColumns, object_array, without_lists
from bert_tf.inputs.labels import row_weights
from bert_tf.inputs.token_inputs import rows_of_examples
from bert_tf.inputs.token_rows import MarkedRows, TokenizedTexts, parallel_map
from bert_tf.models.preprocessor import Preprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
class ItemPreprocessor(Preprocessor):
    """Maps lists of strings to windows with a marked token for each item, and their labels.

    Attributes:
        item: What an item is called.
    """

    item = "item"

    def windows(self, lists: Sequence[Sequence[str]]) -> MarkedRows:
        """Returns the windows of lists, which are cut between items."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `windows`.")

    def item_labels(self, lists: Sequence[Sequence[str]], y: Any) -> np.ndarray:
        """Returns the labels of all items, int32 `[M]`, from what `targets` returned, or None.

        Raises:
            UserError: If there is not one label for each item.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `item_labels`.")

    def training_rows(self, columns, y, sample_weight):
        """Returns the windows to train on, and their labels and weights, if any.

        Raises:
            UserError: If there is no item, not one label for each, or not one weight for each list.
        """
        (lists,) = columns
        labels = self.item_labels(lists, y)
        if not len(labels):
            raise UserError(f"`x` must have at least one {self.item}. Received: none.")
        windows = self.encode(columns)
        labels = (windows.labels(labels),)
        if sample_weight is not None:
            labels += (row_weights(sample_weight, len(lists))[windows.examples],)
        return windows, labels

    def encode(self, columns, window_stride=None):
        """Returns the windows of the lists.

        Raises:
            UserError: If there is no tokenizer, or `window_stride` is given.
        """
        rule = f"must be None: what is too long is cut between {self.item}s"
        require(window_stride is None, rule, UserError, window_stride=window_stride)
        self.require_tokenizer()
        return self.windows(columns[0])

    def postprocess(self, values, rows, columns, pooling):
        """Returns `logits` `[M, …]` of the items, and the `row_splits` of the lists."""
        return {"logits": rows.marked_values(values), "row_splits": rows.item_splits}


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class SourceTargetPreprocessor(Preprocessor):
    """Maps sources and targets to tokens and labels: true words before a word predict it.

    `longest_target` is the maximum number of tokens of a target, start and end included;
    `max_length` that of a source.

    Reference: Williams and Zipser 1989, "A learning algorithm for continually running fully
    recurrent neural networks", for teacher forcing.
    """

    longest_target: int | None = dataclasses.field(default=None, init=False, repr=False)

    def token_labels(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the word after each token that the model reads, int32 `[B, T]`.

        Tokens without a next word have the label `IGNORED`.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `token_labels`.")

    def batches(self, source, training, labels=(), numbers=None, seed=0):
        if numbers is None:
            source = source.map(_as_pair)
        batches = super().batches(source, training, labels, numbers, seed)
        return parallel_map(
            batches, lambda tokens, *weights: (tokens, self.token_labels(tokens), *weights)
        )

    def training_rows(self, columns, y, sample_weight):
        """Returns the pairs, and their weights, if any.

        Raises:
            UserError: If there is no text, or `y` is given.
        """
        rule = "must be None with text: `x` is a tuple of two lists, (sources, targets)"
        require(y is None, rule, UserError, y=type(y).__name__)
        rows, labels = super().training_rows(columns, None, None)
        if sample_weight is not None:
            labels = (row_weights(sample_weight, columns.num_rows),)
        return rows, labels


def _as_pair(source, *rest):
    """Returns an element of a dataset with the source and the target as one tuple."""
    return (source, *rest) if isinstance(source, tuple) else ((source, rest[0]), *rest[1:])


class ListPreprocessor(Preprocessor):
    """Reads texts and lists of texts."""

    def read_columns(self, x):
        """Returns raw text as columns; a list of m texts in each example is m columns.

        Raises:
            DataError: If lists have different lengths.
        """
        return super().read_columns(without_lists(x))


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class VectorPreprocessor(ListPreprocessor):
    """Maps texts to tokens; K texts of an example to an axis of K.

    For `prompts` and `default_prompt_name` see `VectorModel`.
    """

    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None

    def tokenize(self, *texts):
        """Returns one text of each example as tokens `[B, T]`, K texts as `[B, K, T]`."""
        if len(texts) == 1:
            return super().tokenize(*texts)
        columns = tf.stack(texts, axis=1)  # K times [B] -> [B, K]
        return rows_of_examples(super().tokenize(tf.reshape(columns, [-1])), columns)

    def example_rows(self, columns):
        if len(columns) == 1:
            return super().example_rows(columns)
        texts = np.stack(columns, axis=1).reshape(-1)  # K times [n] -> [n * K]
        return TokenizedTexts.of(self.tokenizer, (texts,), self.max_sequence_length, len(columns))

    def with_prompt(self, columns: TextColumns, prompt: str | None) -> TextColumns:
        """Returns the texts with a prompt before each."""
        if not prompt:
            return columns
        start = prompt.encode()
        return TextColumns(object_array([start + text for text in column]) for column in columns)

    def encode(self, columns, window_stride=None):
        if len(columns) > 1:
            raise UserError(
                "`x` must be one list of texts. Received: a tuple of lists, or pairs. Encode each "
                'list by itself; a list of strings is `["a text", "another"]`.'
            )
        return super().encode(columns, window_stride)


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class PairsPreprocessor(Preprocessor):
    """Maps a text with K others to K pairs, and values of pairs to those of examples."""

    def pair_tokens(self, firsts: tf.Tensor, seconds: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns strings `[B]` and `[B, K]` as tokens `[B, K, T]`."""
        repeated = tf.repeat(firsts, tf.shape(seconds)[1])  # [B] -> [B * K]
        return rows_of_examples(super().tokenize(repeated, tf.reshape(seconds, [-1])), seconds)

    def example_rows(self, columns):
        pairs, count = _pairs(columns)
        if count == 1:
            return super().example_rows(columns)
        return TokenizedTexts.of(self.tokenizer, pairs, self.max_sequence_length, count)

    def encode(self, columns, window_stride=None):
        """Returns the pairs as rows: pairs of like length share a batch, whatever their example."""
        return super().encode(_pairs(columns)[0], window_stride)

    def postprocess(self, values, rows, columns, pooling):
        """Returns logits `[n, K]` from those of the pairs."""
        return values.reshape(columns.num_rows, _pairs(columns)[1])


def _pairs(columns):
    """Returns texts `[n]` and their K others as two columns `[n * K]`, and K."""
    firsts, *others = columns
    others = others[0] if others[0].ndim == 2 else np.stack(others, axis=1)  # [n, K]
    count = others.shape[1]
    return TextColumns((np.repeat(firsts, count), others.reshape(-1))), count
