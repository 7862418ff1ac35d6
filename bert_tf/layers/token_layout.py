"""Which tokens the encoder computes on, and where they stand in the `[B, T]` batch.

Every layer inside the encoder works on rows, `[R, H]`. Two layouts say what a row is:

- packed: R is the number of real tokens; padding is dropped at the door and put back, as zeros, at
  the exit. Wherever the padding stood (right, left, holes), every token keeps its position.
- padded: R = B * T; shapes stay static, as XLA and TPUs want it, and attention masks the padding.
"""

import contextlib
import dataclasses
import threading

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class TokenLayout:
    """Maps between `[B, T, ...]` and rows `[R, ...]`.

    Attributes:
        padding_mask: bool `[B, T]`, True for real tokens.
        real_tokens: int32 `[R]`, the flat index of every row in `[B * T]`; None when padded.
        row_splits: int32 `[B + 1]`, where each sequence's rows begin; None when padded.
    """

    padding_mask: tf.Tensor
    real_tokens: tf.Tensor | None = None
    row_splits: tf.Tensor | None = None

    @classmethod
    def padded(cls, padding_mask: tf.Tensor) -> "TokenLayout":
        """All `B * T` positions are rows."""
        return cls(padding_mask)

    @classmethod
    def packed(cls, padding_mask: tf.Tensor) -> "TokenLayout":
        """Only the real tokens are rows."""
        real_tokens = tf.cast(tf.where(tf.reshape(padding_mask, [-1])), tf.int32)  # [B*T] -> [R, 1]
        lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)  # [B, T] -> [B]
        row_splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)  # [B + 1]
        return cls(padding_mask, tf.squeeze(real_tokens, axis=1), row_splits)

    @property
    def is_packed(self) -> bool:
        return self.row_splits is not None

    def to_rows(self, values: tf.Tensor) -> tf.Tensor:
        """`[B, T, ...]` -> `[R, ...]`."""
        flat = tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], axis=0))
        flat.set_shape([None, *values.shape[2:]])
        return tf.gather(flat, self.real_tokens) if self.is_packed else flat

    def to_batch(self, rows: tf.Tensor) -> tf.Tensor:
        """`[R, H]` -> `[B, T, H]`; zeros where there is padding."""
        batch_shape = tf.shape(self.padding_mask)
        width = rows.shape[-1]
        if self.is_packed:
            flat = tf.scatter_nd(
                self.real_tokens[:, tf.newaxis], rows, [tf.reduce_prod(batch_shape), width]
            )
            batch = tf.reshape(flat, [batch_shape[0], batch_shape[1], width])  # -> [B, T, H]
        else:
            batch = tf.reshape(rows, [batch_shape[0], batch_shape[1], width])  # -> [B, T, H]
            # Not a product: what padding computed may be NaN or infinite, and must not show.
            batch = tf.where(self.padding_mask[:, :, tf.newaxis], batch, tf.zeros([], batch.dtype))
        batch.set_shape([*self.padding_mask.shape, width])
        return batch


_scope = threading.local()


@contextlib.contextmanager
def static_shapes():
    """Inside, models choose the padded layout: what is traced will be compiled by XLA."""
    previous = getattr(_scope, "static", False)
    _scope.static = True
    try:
        yield
    finally:
        _scope.static = previous


def needs_static_shapes() -> bool:
    """Whether the code being traced goes to XLA: inside `static_shapes()` or on a TPU."""
    on_tpu = isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy)
    return on_tpu or getattr(_scope, "static", False)
