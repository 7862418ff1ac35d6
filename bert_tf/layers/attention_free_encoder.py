"""An encoder without attention, which takes the place of `BertEncoder`: the vectors of the words.

It is also the base of the other encoders that BERT is compared with.
"""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.layers.attention.probes import AttentionProbes
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule


@keras.saving.register_keras_serializable(package="bert_tf")
class AttentionFreeEncoder(ConfiguredLayer):
    """No blocks: the vectors of tokens are those of the words. The base of encoders with blocks.

    A subclass fills `blocks` and overrides `encoded`.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        gradient_checkpointing: False.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        rule, probes: As in `BertEncoder`; an error if they ask for attention.

    Returns:
        A list of the given rows and the rows after each block, `[R, H]` each.

    Raises:
        UserError: If an argument is given that needs attention.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 0}
        >>> config = bert_tf.BertConfig(**sizes, encoder_type="none")
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> len(bert_tf.layers.AttentionFreeEncoder(config)(tf.ones([2, 32]), layout=layout))
        1
    """

    sees_later_tokens = False

    def __init__(self, config: BertConfig | dict, gradient_checkpointing: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        if gradient_checkpointing:
            raise UserError(
                "`gradient_checkpointing` must be False for an encoder without attention. "
                f"Received: gradient_checkpointing=True, encoder_type={self.config.encoder_type!r}"
            )
        self.gradient_checkpointing = False
        self.blocks = []
        self.distance_bias = None

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        self.built = True

    def call(
        self,
        rows,
        layout: TokenLayout,
        rule: AttentionRule = EVERY_TOKEN,
        training=False,
        probes: AttentionProbes | None = None,
    ):
        self._require_no_attention(layout, rule, probes or AttentionProbes())
        return [rows, *self.encoded(rows, layout, training)]

    def encoded(self, rows: tf.Tensor, layout: TokenLayout, training: bool) -> list[tf.Tensor]:
        """Returns the rows after each block."""
        return []

    def _require_no_attention(self, layout, rule, probes):
        given = {
            "output_attentions": probes.probabilities is not None,
            "head_mask": probes.head_mask is not None,
            "observe": probes.observe is not None,
            "sequence_ids": self.blocks and layout.sequence_ids is not None,
            "attended_mask": rule.attended_rows is not None,
            "causal": self.sees_later_tokens and rule.causal,
        }
        for name, is_given in given.items():
            if is_given:
                raise UserError(
                    f"`{name}` must be left out: the encoder does not support it. "
                    f"Received: {name}, encoder_type={self.config.encoder_type!r}"
                )

    def stack(self) -> list:
        """Raises `UserError`: text is generated with the blocks of a Transformer."""
        raise UserError(
            "`encoder_type` must be 'transformer' for a model that generates text. "
            f"Received: encoder_type={self.config.encoder_type!r}"
        )

    def dense_layers(self) -> dict[str, Dense]:
        """Returns nothing: there is no layer whose kernel can have another form."""
        return {}

    def attention_layers(self) -> dict:
        """Returns nothing."""
        return {}
