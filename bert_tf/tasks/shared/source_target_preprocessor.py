"""Pairs of a source and a target, whose labels are the words of the target."""

import dataclasses

import keras
import tensorflow as tf

from bert_tf.errors import UserError, require
from bert_tf.inputs.labels import row_weights
from bert_tf.inputs.token_rows import parallel_map
from bert_tf.models.preprocessor import Preprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class SourceTargetPreprocessor(Preprocessor):
    """Maps sources and targets to tokens and labels: true words before a word predict it.

    Args:
        longest_target: The maximum number of tokens of a target, start and end included.
        **options: See `Preprocessor`; `max_length` is that of a source.

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
