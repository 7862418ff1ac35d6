"""How checkpoints name the layers of a network: one row per layer, one column per format."""

from typing import NamedTuple

# What a layer holds.
TABLE = "table"  # one embedding table [*, H]
DENSE = "dense"  # kernel [in, out], bias [out]
# Kernel [H, 3H], bias [3H]; three layers in every other format. 3nD with n < N heads left.
QUERY_KEY_VALUE = "query_key_value"
KEY_VALUE = "key_value"  # of cross-attention: kernel [H, 2H], bias [2H]; elsewhere two layers
# The first layer of the feed-forward. If it is gated, it is two layers: the gate and the rest.
INTERMEDIATE = "intermediate"
QUERY_VALUE = "query_value"  # a bias [2H] of queries and values; two vectors elsewhere
CONVOLUTION = "convolution"  # kernel [k * in, out], elsewhere [out, in, k], bias [out]
ATTENTION_OUTPUT = "attention_output"  # kernel [H, H] or [nD, H], in Keras formats [N, D, H]
LAYER_NORM = "layer_norm"  # gamma [H], beta [H]
# A dense layer that the original made without a layer class: output_weights [out, in].
OUTPUT = "output"
PROJECTION = "projection"  # kernel [in, out]
VECTOR = "vector"  # one vector, or a table without a layer

# The layers of a `BertEncoderBlock`: kind, path in the block, name in Hugging Face's block.
ENCODER_BLOCK = (
    (QUERY_KEY_VALUE, "attention.query_key_value", "attention.self.{role}"),
    (ATTENTION_OUTPUT, "attention_output", "attention.output.dense"),
    (LAYER_NORM, "attention_layer_norm", "attention.output.LayerNorm"),
    (INTERMEDIATE, "intermediate", "intermediate.{role}"),
    (DENSE, "output_dense", "output.dense"),
    (LAYER_NORM, "output_layer_norm", "output.LayerNorm"),
)


class Row(NamedTuple):
    """A layer of the network and its name in each format; None where a format has no such layer.

    `|` separates the spellings of one format; the first is written. The columns are our own
    attribute path, Hugging Face's module, google-research/bert's variable scope, and the places in
    keras-hub's HDF5 files and in the object graph of tensorflow/models' checkpoints.
    """

    kind: str
    ours: str
    huggingface: str | None
    tf1: str | None
    keras_hub: str | None = None
    tf_models: str | None = None


def layer_row(kind: str, ours: str, name: str, *others: str | None, scope: str = "") -> Row:
    """Returns a layer whose scope for google-research/bert is `scope` and its name with slashes."""
    return Row(kind, ours, name, scope + name.replace(".", "/"), *others)
