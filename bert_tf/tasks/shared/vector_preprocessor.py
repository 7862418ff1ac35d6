"""What a `VectorModel` reads: any number of texts in an example, each encoded by itself."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.columns import TextColumns, object_array
from bert_tf.inputs.token_inputs import rows_of_examples
from bert_tf.inputs.token_rows import TokenizedTexts
from bert_tf.models.preprocessor import Preprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class VectorPreprocessor(Preprocessor):
    """Maps texts to tokens; K texts of an example to an axis of K.

    Args:
        prompts: Texts that `encode` puts before other texts, by names such as "query".
        default_prompt_name: The prompt if `encode` gets none; None means no prompt.
        **options: The arguments of `Preprocessor`.
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
