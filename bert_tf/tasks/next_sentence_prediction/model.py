"""Next sentence: does the second text follow the first?"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.models.backbone import BertBackbone
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.training.losses.sparse_crossentropy import class_weights_by_id


@keras.saving.register_keras_serializable(package="bert_tf")
class BertNextSentencePredictor(DenseHeadModel):
    """BERT with the next-sentence head of its pre-training.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`; the longer text of a pair is truncated.

    Returns:
        Logits float32 `[B, 2]`; class 0 is "follows". `fit` takes pairs and labels 0 and 1.

    Raises:
        UserError: See `TaskModel`.

    Example:
        >>> model = bert_tf.BertNextSentencePredictor.from_pretrained("bert-base-uncased/")
        >>> model.next_sentence_probability(
        ...     ["He opened the fridge.", "He opened the fridge."],
        ...     ["There was no milk left.", "The treaty was signed in 1648."],
        ... )
        array([..., ...], dtype=float32)

    Reference: Devlin et al. 2019, section 3.1; google-research/bert run_pretraining.py.
    """

    def __init__(
        self, backbone: BertBackbone, tokenizer=None, max_length: int | None = None, **kwargs
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.next_sentence = self.dense_head(2, "next_sentence", example_shape=(2, 2))
        self.built = True

    def head(self, outputs, tokens, training=False):
        return tf.cast(self.next_sentence(outputs["pooled_output"]), tf.float32)  # [B, 2]

    def class_weights(self, class_weight):
        return class_weights_by_id(class_weight, 2)

    def next_sentence_probability(
        self,
        firsts: str | Sequence[str],
        seconds: str | Sequence[str],
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> np.ndarray | np.float32:
        """Returns the probability that each second text follows its first.

        Args:
            firsts, seconds: n strings, or one.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            float32 `[n]`; for one pair of strings a float32.

        Raises:
            UserError: If `firsts` and `seconds` have different lengths, or a text is empty.
        """
        columns = self.preprocessor.read_examples((firsts, seconds))
        for row, pair in enumerate(zip(*columns)):
            if not all(text.strip() for text in pair):
                raise UserError(
                    "Neither text of a pair may be empty. Received "
                    f"in row {row}: {tuple(text.decode() for text in pair)}"
                )
        return self.predict_decoded(columns, batch_size, token_budget, verbose)
