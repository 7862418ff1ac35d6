"""What is observed or changed in the attention of a model while it computes, for inspection."""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from bert_tf.errors import user_error
from bert_tf.layers.attention.token_layout import TokenLayout


@dataclasses.dataclass(frozen=True, eq=False)
class AttentionProbes:
    """The optional argument of an encoder and its blocks; without it, nothing is observed.

    Args:
        head_mask: Factors of the outputs of the heads: float `[B, L, N]` for an encoder, pruned
            heads included, and `[B, n]` for one block. None means 1.
        probabilities: A list to which each block appends its attention probabilities
            `[B, n, T, T]`. Only for padded layouts. None means that they are not kept.
        observe: A function that each block calls with its `BertSelfAttention`, the queries, keys
            and values `[R, 3, n, D]`, the `TokenLayout` and the `AttentionRule`.
    """

    head_mask: tf.Tensor | None = None
    probabilities: list[tf.Tensor] | None = None
    observe: Callable[..., None] | None = None

    def of_block(self, index: int, heads: list[int]) -> "AttentionProbes":
        """Returns the probes of one block, which has the given ones of the N heads."""
        if self.head_mask is None:
            return self
        head_mask = tf.gather(self.head_mask[:, index], heads, axis=1)  # [B, L, N] -> [B, n]
        return dataclasses.replace(self, head_mask=head_mask)

    def keep(self, probabilities: tf.Tensor | None) -> None:
        """Keeps the probabilities of a block if they are asked for.

        Raises:
            UserError: If they are, and there are none because the layout is packed.
        """
        if self.probabilities is None:
            return
        if probabilities is None:
            expected = "be padded if `probes` keeps probabilities: packed attention stores none"
            raise user_error("`layout`", expected, "a packed layout. Use `TokenLayout.padded`.")
        self.probabilities.append(probabilities)

    def weighted(self, context: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
        """Multiplies the heads of each row `[R, n, D]` by the factors of its example `[B, n]`.

        The product is computed in float32.
        """
        if self.head_mask is None:
            return context
        shape = [*tf.unstack(tf.shape(layout.padding_mask)), context.shape[1]]
        factors = tf.cast(self.head_mask, tf.float32)[:, tf.newaxis]  # [B, n] -> [B, 1, n]
        factors = layout.to_rows(tf.broadcast_to(factors, shape))  # [B, T, n] -> [R, n]
        product = tf.cast(context, tf.float32) * factors[:, :, tf.newaxis]
        return tf.cast(product, context.dtype)
