"""The language models of ELMo: the next word from those before, the previous one from those after.

Glossary: `B` rows, `T` tokens of a row, `M` labelled tokens, `H` hidden size, `V` vocabulary.
"""

import dataclasses

import keras
import tensorflow as tf

from bert_tf.inputs.word_labels import next_words
from bert_tf.models.task_model import TaskModel
from bert_tf.models.task_spec import NEXT_WORDS
from bert_tf.tasks.shared.text_generator import NextWordModel
from research.baselines.backbone import BaselineBackbone
from research.baselines.config import ELMO


@keras.saving.register_keras_serializable(package="bert_tf")
class BidirectionalLanguageModel(NextWordModel, TaskModel):
    """A `BaselineBackbone` of the kind "elmo" and one output layer for both directions.

    The loss is the mean over the predictions of both directions. Task models take the backbone
    only.

    Args:
        backbone: The `BaselineBackbone`, whose configuration has the kind "elmo".
        tokenizer, max_length: See `TaskModel`.

    Returns:
        Logits float32 `[B, 2 T, V]`: of the next words, then of the previous ones. `fit` takes
        token dictionaries with the labels of `labels_of`.

    Raises:
        UserError: If the backbone is of another kind.

    Example:
        >>> from research.baselines import (
        ...     BaselineBackbone,
        ...     BaselineConfig,
        ...     BidirectionalLanguageModel,
        ... )
        >>> sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48}
        >>> config = BaselineConfig(kind="elmo", num_hidden_layers=2, **sizes)
        >>> backbone = BaselineBackbone(config)
        >>> model = BidirectionalLanguageModel(backbone)
        >>> tokens = {"token_ids": tf.constant([[2, 7, 3]])}
        >>> model.labels_of(tokens).numpy()
        array([[   7,    3, -100, -100,    2,    7]], dtype=int32)
        >>> model(tokens).shape
        TensorShape([1, 6, 64])

    Reference: Peters et al. 2018 (ELMo, arXiv 1802.05365), section 3.1.
    """

    def __init__(self, backbone: BaselineBackbone, tokenizer=None, **kwargs):
        backbone.require_kind(ELMO)
        super().__init__(backbone, tokenizer, **kwargs)
        self.spec = dataclasses.replace(self.spec, labels=NEXT_WORDS)
        self.uses_pooler = False
        backbone.pooler.is_missing = True
        self.output_layer = keras.layers.Dense(backbone.config.vocab_size, name="output_layer")
        self.build()

    def build(self, input_shape=None):
        if not self.output_layer.built:
            self.output_layer.build([None, self.backbone.config.hidden_size // 2])
        self.built = True

    def labels_of(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the words after and before each token, int32 `[B, 2 T]`, -100 for none."""
        arguments = tokens["token_ids"], self.backbone.padding_mask_of(tokens)
        reversed_rows = (tf.reverse(values, [1]) for values in arguments)
        previous_words = tf.reverse(next_words(*reversed_rows), [1])
        return tf.concat([next_words(*arguments), previous_words], axis=1)

    def decoded(self, tokens, training):
        states = self.backbone(tokens, training=training)["sequence_output"]
        directions = tf.split(states, 2, axis=-1)  # twice [B, T, H / 2]
        return tf.concat(directions, axis=1), None, self.labels_of(tokens) >= 0

    def next_word_logits(self, rows, words):
        return tf.cast(self.output_layer(rows), tf.float32)
