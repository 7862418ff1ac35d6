"""Attention of packed tokens whose sequences begin with a prefix that is seen whole.

The tokens of a prefix attend to their prefix; the others, the target, attend to the prefix and to
the target up to themselves, or to the prefix alone.

Glossary, besides that of the package: `P` tokens of all prefixes, `Q` tokens of all targets.

Reference: Dong et al. 2019 (arXiv 1905.03197), figure 1, the sequence-to-sequence mask.
"""

import dataclasses

import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError


def prefix_mask(inputs: dict[str, tf.Tensor], padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns which tokens come before the first one with a segment id above 0, bool `[B, T]`.

    Args:
        inputs: Inputs of a backbone. Without `segment_ids`, all real tokens are in the prefix.
        padding_mask: bool `[B, T]`, True for real tokens.

    Raises:
        UserError: If a row holds several sequences.

    Example:
        >>> inputs = {"segment_ids": tf.constant([[0, 0, 1, 1]])}
        >>> prefix_mask(inputs, tf.constant([[True, True, True, False]])).numpy()
        array([[ True,  True, False, False]])
    """
    if inputs.get("sequence_ids") is not None:
        raise UserError(
            "Inputs must not hold `sequence_ids` where a prefix is seen whole: a row is one "
            f"sequence. Received: {sorted(inputs)}"
        )
    if inputs.get("segment_ids") is None:
        return padding_mask
    in_target = padding_mask & (tf.convert_to_tensor(inputs["segment_ids"]) > 0)
    return padding_mask & (tf.cumsum(tf.cast(in_target, tf.int32), axis=1) == 0)


@dataclasses.dataclass(frozen=True)
class PrefixRows:
    """Which rows `[R]` of packed sequences are those of the prefixes.

    Attributes:
        is_prefix: int32 `[R]`, 1 for the rows of the prefixes and 0 for those of the targets.
        row_splits: int32 `[sequences + 1]`, the first row of each sequence, then R.
        prefix_row_splits: The same for the rows of the prefixes alone; the last is P.
        attends_to_targets: Whether a target attends to itself up to each token, and not to the
            prefix alone. In the latter case, the tokens of a prefix may be anywhere.
    """

    is_prefix: tf.Tensor
    row_splits: tf.Tensor
    prefix_row_splits: tf.Tensor
    attends_to_targets: bool = True

    @classmethod
    def of(
        cls, is_prefix: tf.Tensor, row_splits: tf.Tensor, attends_to_targets: bool = True
    ) -> "PrefixRows":
        """Makes it of bool `[R]` and int32 `[sequences + 1]`."""
        is_prefix = tf.cast(is_prefix, tf.int32)
        counts = tf.concat([[0], tf.cumsum(is_prefix)], axis=0)  # [R + 1]
        return cls(is_prefix, row_splits, tf.gather(counts, row_splits), attends_to_targets)

    def attention(
        self,
        qkv: tf.Tensor,
        dropout_rate: float = 0.0,
        seed: tf.Tensor | None = None,
        compute_dtype: str | None = None,
    ) -> tf.Tensor:
        """Computes the attention of all rows: `[R, 3, N, D]` -> `[R, N, D]`.

        The arguments are those of `ops.varlen_attention`.
        """
        targets, prefixes = tf.dynamic_partition(qkv, self.is_prefix, 2)  # [Q, …], [P, 3, N, D]
        of_prefixes = ops.varlen_attention(
            prefixes, self.prefix_row_splits, dropout_rate, seed, compute_dtype=compute_dtype
        )
        keys, key_row_splits = prefixes, self.prefix_row_splits
        if self.attends_to_targets:
            keys, key_row_splits = qkv, self.row_splits
        of_targets = ops.varlen_cross_attention(
            targets[:, 0],
            keys[:, 1:],
            self.row_splits - self.prefix_row_splits,
            key_row_splits,
            dropout_rate,
            None if seed is None else tf.bitwise.invert(seed),  # not the masks of the prefixes
            causal=self.attends_to_targets,
            compute_dtype=compute_dtype,
        )
        places = tf.dynamic_partition(tf.range(tf.shape(qkv)[0]), self.is_prefix, 2)  # [Q], [P]
        return tf.dynamic_stitch(places, [of_targets, of_prefixes])
