"""The stack of encoder blocks."""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers import pipeline
from bert_tf.layers.attention import BertSelfAttention
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.layers.distance_bias import biases_by_distance
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.layers.token_layout import TokenLayout


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(ConfiguredLayer):
    """A stack of `config.num_hidden_layers` encoder blocks on `[R, H]`.

    `blocks` are those with weights of their own: with `config.shared_blocks` only one.
    `distance_bias`, a number for each bucket of distances and head that all blocks share, is None
    without `config.relative_attention_num_buckets`.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        gradient_checkpointing: Whether training stores only the input of every block and
            recomputes the other activations in the backward pass, with the same dropout (Chen et
            al. 2016, arXiv 1604.06174).

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        return_probabilities: Whether to return the attention probabilities. Only for a padded
            layout.
        head_mask: Factors of the outputs of the heads, float `[B, L, N]`, including pruned heads.
            None means 1. With a head mask, nothing is recomputed.

    Returns:
        A list of the rows after each block, L tensors `[R, H]`, and a list of the attention
        probabilities, L tensors `[B, n, T, T]` for the n heads of each block. The second list is
        empty without `return_probabilities`.

    Raises:
        UserError: If `return_probabilities` is True and the layout is packed.

    Example:
        >>> from bert_tf.layers.token_layout import TokenLayout
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4, num_hidden_layers=2)
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> states, _ = bert_tf.layers.BertEncoder(config)(tf.ones([2, 32]), layout=layout)
        >>> [state.shape for state in states]
        [TensorShape([2, 32]), TensorShape([2, 32])]

    Reference: google-research/bert modeling.py, `transformer_model`.
    """

    def __init__(self, config: BertConfig | dict, gradient_checkpointing: bool = False, **kwargs):
        super().__init__(config, **kwargs)
        self.gradient_checkpointing = gradient_checkpointing
        self.blocks = [
            BertEncoderBlock(
                self.config,
                len(self.config.kept_heads(index)),
                dtype=self.dtype_policy,
                name=f"layer_{index}",
            )
            for index in range(self.config.num_blocks)
        ]
        self.distance_bias = None

    def stack(self) -> list[BertEncoderBlock]:
        """Returns the block of each of the L layers."""
        repeated = self.config.num_hidden_layers if self.config.shared_blocks else 1
        return [*self.blocks] * repeated

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        if self.config.relative_attention_num_buckets:
            self.distance_bias = self.add_weight(
                name="distance_bias",
                shape=[self.config.relative_attention_num_buckets, self.config.num_attention_heads],
                initializer=truncated_normal(self.config.initializer_range),
                autocast=False,
            )
        self.built = True

    def call(
        self, rows, layout: TokenLayout, training=False, return_probabilities=False, head_mask=None
    ):
        states, probabilities = [], []
        biases = None if self.distance_bias is None else biases_by_distance(self.distance_bias)
        recomputes = self.gradient_checkpointing and training
        recomputes = recomputes and not return_probabilities and head_mask is None
        for index, block in enumerate(self.stack()):
            block_mask, heads = None, self.config.kept_heads(index)
            if head_mask is not None:  # [B, L, N] -> [B, n]
                block_mask = tf.gather(head_mask[:, index], heads, axis=1)
            if biases is not None:  # [N, 2 M + 1] -> [n, 2 M + 1]
                layout = layout.with_distance_bias(tf.gather(biases, heads))
            with pipeline.at_block(index):
                rows = pipeline.received(rows, index - 1)
                if recomputes:
                    rows = _recomputed(block, rows, layout)
                else:
                    rows = block(
                        rows,
                        layout=layout,
                        training=training,
                        return_probabilities=return_probabilities,
                        head_mask=block_mask,
                    )
            if return_probabilities:
                rows, block_probabilities = rows
                probabilities.append(block_probabilities)
            states.append(rows)
        return states, probabilities

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layers of all blocks by their paths in the encoder."""
        return {
            f"blocks.{index}.{path}": dense
            for index, block in enumerate(self.blocks)
            for path, dense in block.dense_layers().items()
        }

    def attention_layers(self) -> dict[str, BertSelfAttention]:
        """Returns the attention of all blocks by the paths of what follows its dense layer."""
        return {
            f"blocks.{index}.attention_scores": block.attention
            for index, block in enumerate(self.blocks)
        }

    def prune_heads(self, config: BertConfig) -> None:
        """Removes the weights of the attention heads that are pruned in `config`."""
        for index, block in enumerate(self.blocks):
            before, after = self.config.kept_heads(index), config.kept_heads(index)
            if after != before:
                block.keep_heads([before.index(head) for head in after])
        self.config = config

    def get_config(self):
        return {**super().get_config(), "gradient_checkpointing": self.gradient_checkpointing}


def _recomputed(block, rows, layout):
    """Calls `block` in training and recomputes its activations in the backward pass."""
    keys = block.draw_seeds()  # drawn once, so that both passes drop the same units
    inputs = [rows] if layout.distance_bias is None else [rows, layout.distance_bias]
    # All float variables: tf.custom_gradient does not allow variables that are not arguments, and a
    # variable that is frozen in Keras is still a trainable tf.Variable.
    variables = [v for v in block.variables if keras.backend.is_float_dtype(v.dtype)]

    def forward(rows, *others):
        bias, weights = others[: len(inputs) - 1], others[len(inputs) - 1 :]
        mapping = list(zip(variables, weights))
        with keras.StatelessScope(state_mapping=mapping):
            block_layout = layout.with_distance_bias(*bias) if bias else layout
            return block(rows, layout=block_layout, training=True, dropout_keys=keys)

    @tf.custom_gradient
    def compute(rows, *others):
        def gradient(d_output):
            # Graph optimizers would merge the second pass with the first, and all activations would
            # be stored. Adding a zero that depends on the incoming gradient prevents this.
            first = tf.reshape(d_output, [-1])[:1]
            zero = tf.reduce_sum(tf.where(first == first, tf.zeros_like(first), first))
            again = [rows + zero, *others]
            with tf.GradientTape() as tape:
                tape.watch(again)
                output = forward(*again)
            return tape.gradient(output, again, d_output)

        return forward(rows, *others), gradient

    return compute(*inputs, *[tf.convert_to_tensor(variable) for variable in variables])
