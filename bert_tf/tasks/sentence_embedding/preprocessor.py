"""What `BertSentenceEncoder` reads: any number of texts in an example, each encoded by itself."""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.shared.preprocessors import VectorPreprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
@dataclasses.dataclass(eq=False, kw_only=True)
class SentenceEmbeddingPreprocessor(VectorPreprocessor):
    """Maps texts to tokens, and vectors of windows to vectors of texts.

    Args:
        normalize: Whether the vectors have length 1.
        **options: The arguments of `VectorPreprocessor`.
    """

    normalize: bool = False

    def postprocess(self, values, rows, columns, pooling):
        vectors = super().postprocess(values, rows, columns, pooling)
        if self.normalize and rows.examples is not None:
            vectors = unit_vectors(vectors)  # the mean of unit vectors is shorter
        return vectors


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors `[n, D]` scaled to length 1; zeros stay."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1)


class SentenceEmbeddingModule(ServingModule):
    """Maps text, after the default prompt if there is one, to its vector."""

    def of_tokens(self, tokens):
        return {"vector": self.model(tokens, training=False)}

    def of_text(self, text):
        prompt = self.model.prompts.get(self.model.default_prompt_name, "")
        return super().of_text(text=tf.strings.join([prompt, text]) if prompt else text)
