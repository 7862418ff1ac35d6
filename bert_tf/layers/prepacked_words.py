"""The word embeddings, prepacked for `ops.fused_dense`."""

from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import keras_compat
from bert_tf.base.keras_compat import QuickLayer
from bert_tf.layers.kernels.prepacked_kernel import PrepackedKernel


class PrepackedWords(QuickLayer):
    """A prepacked copy of the word embeddings, for the logits of a head.

    Files of weights do not hold it: it is made again from the table when the table is loaded. The
    layer that owns the table must own this layer, so that Keras loads the table first.

    Args:
        table: Returns the embeddings of the words, float `[V, E]`.
        packed_dtype: The dtype of the copy: "bfloat16", or None for the compute dtype.

    Attributes:
        kernel_impl: The `PrepackedKernel` `[E, V]`, for the argument `prepacked_words` of
            `MaskedLMHead`.

    Example:
        >>> words = PrepackedWords(lambda: 2.0 * tf.eye(4))
        >>> words.kernel_impl.shape
        (4, 4)
    """

    def __init__(self, table: Callable[[], tf.Tensor], packed_dtype: str | None = None, **kwargs):
        super().__init__(**kwargs)
        self.table = table
        self.packed_dtype = packed_dtype or self.compute_dtype
        packed = self._packed_table()
        self.packed_words = self.add_weight(
            name="packed_words",
            shape=packed.shape,
            dtype=packed.dtype.name,
            initializer="zeros",
            trainable=False,
            autocast=False,
        )
        self.packed_words.assign(packed)
        num_words, width = table().shape
        self.kernel_impl = PrepackedKernel(self.packed_words, (width, num_words))
        self.built = True

    def _packed_table(self):
        return ops.pack_dense(tf.cast(self.table(), self.packed_dtype), transposed=True)

    def save_own_variables(self, store):
        """Saves nothing."""

    def load_own_variables(self, store):
        self.packed_words.assign(self._packed_table())


def prepack_words(
    owner: keras.layers.Layer, table: Callable[[], tf.Tensor], packed_dtype: str | None
) -> None:
    """Gives a built layer `prepacked_words`, the `PrepackedWords` of its table, unless it has them.

    Args:
        owner: The layer that owns the table.
        table, packed_dtype: See `PrepackedWords`.
    """
    if owner.prepacked_words is not None:
        return
    words = PrepackedWords(table, packed_dtype, dtype=owner.dtype_policy, name="prepacked_words")
    with keras_compat.unlocked(owner):
        owner.prepacked_words = words
