"""The attention layer, the block and the encoder: probabilities need a padded layout."""

import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.layers import BertEncoder, BertEncoderBlock, BertSelfAttention
from bert_tf.layers.attention.probes import AttentionProbes
from bert_tf.layers.attention.token_layout import TokenLayout

MASK = tf.constant([[True, True, False]])


@pytest.mark.parametrize("kind", [BertSelfAttention, BertEncoderBlock, BertEncoder])
@pytest.mark.parametrize("layout", [TokenLayout.packed, TokenLayout.packed_in_place])
def test_probabilities_of_a_packed_layout_are_refused(kind, layout, tiny_config):
    layout = layout(MASK)
    rows = tf.ones([len(layout.real_tokens), tiny_config.hidden_size])
    layer = kind(tiny_config)
    layer(rows, layout=layout)
    with pytest.raises(UserError, match="`layout` must be padded.*probabilities"):
        layer(rows, layout=layout, probes=AttentionProbes(probabilities=[]))
