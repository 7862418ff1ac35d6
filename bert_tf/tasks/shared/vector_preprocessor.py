"""What a `VectorModel` reads: any number of texts in an example, each encoded by itself."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.containers import object_array
from bert_tf.inputs.token_inputs import rows_of_examples
from bert_tf.inputs.tokenized_texts import TokenizedTexts
from bert_tf.models.preprocessor import Preprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class VectorPreprocessor(Preprocessor):
    """Maps texts to tokens; K texts of an example to an axis of K.

    Args:
        prompts: Texts that `encode` puts before others, by names such as "query".
        default_prompt_name: The prompt where `encode` is given none; None for no prompt.
        **options: The arguments of `Preprocessor`.

    Attributes:
        no_duplicates: Whether no text may be in two examples of a batch to train on.
    """

    texts_per_example = None

    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    no_duplicates: bool = dataclasses.field(default=False, init=False, repr=False)

    def tokens_of(self, inputs):
        columns = self.tensor_columns(inputs)
        if len(columns) == 1:
            return self.tokenize(columns[0])
        columns = tf.stack(columns, axis=1)  # K times [B] -> [B, K]
        return rows_of_examples(self.tokenize(tf.reshape(columns, [-1])), columns)

    def example_rows(self, columns):
        if len(columns) == 1:
            return super().example_rows(columns)
        texts = np.stack(columns, axis=1).reshape(-1)  # K times [n] -> [n * K]
        return TokenizedTexts.of(self.tokenizer, (texts,), self.max_sequence_length, len(columns))

    def batch_groups(self, columns):
        if not self.no_duplicates:
            return None
        texts = np.stack(columns, axis=1)  # [n, K]
        return np.unique(texts, return_inverse=True)[1].reshape(texts.shape)

    def with_prompt(self, columns: TextColumns, prompt: str | None) -> TextColumns:
        """Returns the texts with a prompt before each."""
        if not prompt:
            return columns
        start = prompt.encode()
        return TextColumns(object_array([start + text for text in column]) for column in columns)

    def rows(self, columns, window_stride=None):
        if len(columns) > 1:
            raise UserError(
                "`x` must be one list of texts. Received: a tuple of lists, or pairs. Encode each "
                'list by itself; a list of strings is `["a text", "another"]`.'
            )
        return super().rows(columns, window_stride)
