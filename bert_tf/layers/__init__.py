"""The Keras layers of BERT.

Glossary, used in every module: `B` batch, `T` sequence length, `N` heads, `D` head size, `H` hidden
size, `F` feed-forward size, `V` vocabulary, `P` masked positions, `L` layers, `R` rows, the tokens
that the encoder computes on: the real tokens of a packed batch, or all `B * T` of a padded one. The
layers inside the encoder work on `[R, H]`, and a `TokenLayout` says which token each row is.
"""

from bert_tf.layers.attention.cross_attention import BertCrossAttention
from bert_tf.layers.attention.key_values import KeyValueCache
from bert_tf.layers.attention.self_attention import BertSelfAttention
from bert_tf.layers.crf import ConditionalRandomField
from bert_tf.layers.decoder import BertDecoder
from bert_tf.layers.decoder_block import BertDecoderBlock
from bert_tf.layers.dense import Dense
from bert_tf.layers.embeddings import BertEmbeddings
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.lstm import StackedLSTM
from bert_tf.layers.pooling import BertPooler, LayerMean, ScalarMix, SequencePooling
from bert_tf.layers.quantization import Quantization
from bert_tf.layers.residual_layer_norm import ResidualLayerNorm
from bert_tf.layers.vector_projection import VectorProjection, Whitening

__all__ = [
    "BertCrossAttention",
    "BertDecoder",
    "BertDecoderBlock",
    "BertEmbeddings",
    "BertEncoder",
    "BertEncoderBlock",
    "BertPooler",
    "BertSelfAttention",
    "ConditionalRandomField",
    "Dense",
    "KeyValueCache",
    "LayerMean",
    "Quantization",
    "ResidualLayerNorm",
    "ScalarMix",
    "SequencePooling",
    "StackedLSTM",
    "VectorProjection",
    "Whitening",
]
