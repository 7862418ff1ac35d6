"""The neural probabilistic language model, NNLM: the next word from the last few.

Glossary: `B` rows, `T` tokens of a row, `M` labelled tokens, `H` hidden size, `V` vocabulary,
`n` is `config.context_size`, `C = n H`.
"""

import dataclasses

import keras
import tensorflow as tf

from bert_tf.inputs.word_labels import next_words
from bert_tf.models.task_model import TaskModel
from bert_tf.models.task_spec import NEXT_WORDS
from bert_tf.tasks.shared.text_generator import NextWordModel
from research.baselines.backbone import BaselineBackbone
from research.baselines.config import NNLM


@keras.saving.register_keras_serializable(package="bert_tf")
class NeuralLanguageModel(NextWordModel, TaskModel):
    """A `BaselineBackbone` of the kind "nnlm" and the output layer of Bengio et al.

    The logits are `b + W x + U tanh(d + G x)` of the concatenated vectors `x` of the last `n`
    tokens. The backbone computes tanh. Task models take the backbone only.

    Args:
        backbone: The `BaselineBackbone`, whose configuration has the kind "nnlm".
        has_direct_connections: Whether there is `W`, from the words to the output.
        tokenizer, max_length: See `TaskModel`.

    Returns:
        Logits float32 `[B, T, V]`. `fit` takes token dictionaries with the labels of `labels_of`.

    Raises:
        UserError: If the backbone is of another kind.

    Example:
        >>> from research.baselines import BaselineBackbone, BaselineConfig, NeuralLanguageModel
        >>> sizes = {"vocab_size": 64, "hidden_size": 32, "context_size": 3}
        >>> config = BaselineConfig(kind="nnlm", num_hidden_layers=1, **sizes)
        >>> model = NeuralLanguageModel(BaselineBackbone(config))
        >>> tokens = {"token_ids": tf.constant([[2, 7, 9, 3, 0]])}
        >>> model.labels_of(tokens)
        <tf.Tensor: shape=(1, 5), dtype=int32, numpy=array([[   7,    9,    3, -100, -100]], ...)>
        >>> model(tokens).shape
        TensorShape([1, 5, 64])

    Reference: Bengio et al. 2003, "A Neural Probabilistic Language Model", JMLR 3, equation 1.
    """

    def __init__(
        self,
        backbone: BaselineBackbone,
        has_direct_connections: bool = True,
        tokenizer=None,
        **kwargs,
    ):
        backbone.require_kind(NNLM)
        super().__init__(backbone, tokenizer, **kwargs)
        self.spec = dataclasses.replace(self.spec, labels=NEXT_WORDS)
        self.uses_pooler = False
        self.has_direct_connections = has_direct_connections
        backbone.pooler.is_missing = True
        vocab_size = backbone.config.vocab_size
        self.output_layer = keras.layers.Dense(vocab_size, name="output_layer")
        self.direct = None
        if has_direct_connections:
            self.direct = keras.layers.Dense(vocab_size, use_bias=False, name="direct")
        self.build()

    def build(self, input_shape=None):
        config = self.backbone.config
        if not self.output_layer.built:
            self.output_layer.build([None, config.hidden_size])
            if self.direct is not None:
                self.direct.build([None, config.context_size * config.hidden_size])
        self.built = True

    def labels_of(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the word after each token, int32 `[B, T]`, -100 where there is none."""
        return next_words(tokens["token_ids"], self.backbone.padding_mask_of(tokens))

    def decoded(self, tokens, training):
        """Returns the backbone's vectors and, for `W`, the contexts: `[B, T, H + C]`."""
        mask = self.backbone.padding_mask_of(tokens)
        outputs = self.backbone(tokens, training=training, output_hidden_states=True)
        states = outputs["sequence_output"]
        if self.direct is not None:
            contexts = self.backbone.encoder.contexts(outputs["hidden_states"][0], mask)
            states = tf.concat([states, contexts], axis=-1)
        return states, None, mask & (self.labels_of(tokens) >= 0)

    def next_word_logits(self, rows, words):
        hidden_size = self.backbone.config.hidden_size
        logits = self.output_layer(rows[:, :hidden_size])
        if self.direct is not None:
            logits += self.direct(rows[:, hidden_size:])
        return tf.cast(logits, tf.float32)
