"""Which tokens the encoder computes on, and where they stand in the `[B, T]` batch.

Every layer inside the encoder works on rows, `[R, H]`. Two layouts say what a row is:

- packed: R is the number of real tokens; padding is dropped at the door and put back, as zeros, at
  the exit. Wherever the padding stood (right, left, holes), every token keeps its position.
- padded: R = B * T; shapes stay static, as XLA and TPUs want it, and attention masks the padding.

Between the two, packed in place: R = B * T, but attention is that of the packed rows.
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
        row_splits: int32 `[sequences + 1]`, where each sequence's rows begin; None when padded.
        sequence_ids: int32 `[B, T]`, the sequence of each token where a row of the batch holds
            several; None when it holds one.
        has_padding_rows: Whether padding is among the rows.
        causal: Whether a token attends to itself and what stands before it only.
        window_size: How far to either side a token sees in its sequence; None: all of it.
        num_global_tokens: With a window: the first tokens of a sequence, which see all and are
            seen by all.
    """

    padding_mask: tf.Tensor
    real_tokens: tf.Tensor | None = None
    row_splits: tf.Tensor | None = None
    sequence_ids: tf.Tensor | None = None
    has_padding_rows: bool = True
    causal: bool = False
    window_size: int | None = None
    num_global_tokens: int = 0

    @classmethod
    def padded(cls, padding_mask, sequence_ids=None, **attention) -> "TokenLayout":
        """All `B * T` positions are rows; `attention`: `causal` and what follows it."""
        return cls(padding_mask, sequence_ids=sequence_ids, **attention)

    @classmethod
    def packed(cls, padding_mask, sequence_ids=None, **attention) -> "TokenLayout":
        """Only the real tokens are rows. The tokens of a sequence must stand side by side."""
        real_tokens = tf.cast(tf.where(tf.reshape(padding_mask, [-1])), tf.int32)  # [B*T] -> [R, 1]
        real_tokens = tf.squeeze(real_tokens, axis=1)  # -> [R]
        if sequence_ids is None:
            lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)  # [B, T] -> [B]
            row_splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)  # [B + 1]
        else:
            row_splits = _starts_of_runs(real_tokens, sequence_ids)
        return cls(padding_mask, real_tokens, row_splits, sequence_ids, False, **attention)

    @classmethod
    def packed_in_place(cls, padding_mask, padding_apart=True, **attention) -> "TokenLayout":
        """All `B * T` positions are rows, as XLA's static shapes want it, but packed: the real
        tokens of a row of the batch come first, and its padding makes up sequences of its own.

        Args:
            padding_mask: As in the attributes.
            padding_apart: Whether every padding is a sequence, so that attention costs what the
                real tokens cost; else those of a row of the batch are one together. That is for a
                GPU, whose kernel spends on a sequence of one row what it spends on one of 64.
            **attention: `causal` and what follows it.
        """
        batch, length = tf.unstack(tf.shape(padding_mask))
        first = tf.range(batch)[:, tf.newaxis] * length  # [B, 1]
        order = tf.argsort(tf.cast(~padding_mask, tf.int32), axis=1, stable=True)  # [B, T]
        lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
        if padding_apart:  # T sequences: of `lengths` rows, of none, ..., of one padding each
            columns = tf.range(length)
            starts = tf.where(columns == 0, 0, tf.maximum(columns, lengths))  # [B, T]
        else:
            starts = tf.concat([tf.zeros_like(lengths), lengths], axis=1)  # [B, 2]
        row_splits = tf.concat([tf.reshape(first + starts, [-1]), [batch * length]], axis=0)
        return cls(padding_mask, tf.reshape(first + order, [-1]), row_splits, **attention)

    def attention_mask(self) -> tf.Tensor:
        """Which keys a query sees, for a padded layout: bool `[B, 1, 1 or T, T]`."""
        mask = self.padding_mask[:, tf.newaxis, tf.newaxis, :]  # [B, 1, 1, T]
        if self.sequence_ids is not None:
            ids = self.sequence_ids
            mask &= (ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :])[:, tf.newaxis]  # [B, 1, T, T]
        columns = tf.range(tf.shape(self.padding_mask)[1])
        not_later = columns[tf.newaxis, :] <= columns[:, tf.newaxis]  # [T, T]
        if self.window_size is not None:
            # Counted in real tokens of the sequence, as the packed rows are.
            place = tf.reduce_sum(tf.cast(mask & not_later, tf.int32), axis=-1) - 1  # [B, 1, T]
            query, key = place[..., tf.newaxis], place[:, :, tf.newaxis, :]
            near = tf.abs(query - key) <= self.window_size  # [B, 1, T, T]
            near |= (query < self.num_global_tokens) | (key < self.num_global_tokens)
            mask &= near
        if self.causal:
            mask &= not_later
        return mask

    def row_attention(self) -> dict:
        """Which rows see which, for `ops.varlen_attention`."""
        if self.window_size is None:
            return {"causal": self.causal}
        return {
            "causal": self.causal,
            "window_size": self.window_size,
            "num_global_tokens": self.num_global_tokens,
        }

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
        if self.has_padding_rows:
            # Not a product: what padding computed may be NaN or infinite, and must not show.
            batch = tf.where(self.padding_mask[:, :, tf.newaxis], batch, tf.zeros([], batch.dtype))
        batch.set_shape([*self.padding_mask.shape, width])
        return batch


def _starts_of_runs(real_tokens, sequence_ids) -> tf.Tensor:
    """Row splits `[sequences + 1]` from real tokens `[R]` and sequence ids `[B, T]`."""
    length = tf.shape(sequence_ids)[1]
    ids = tf.gather(tf.reshape(sequence_ids, [-1]), real_tokens)  # [R]
    rows = real_tokens // length
    changed = (ids[1:] != ids[:-1]) | (rows[1:] != rows[:-1])
    count = tf.size(real_tokens)
    inner = tf.cast(tf.where(changed), tf.int32)[:, 0] + 1
    # Without a token there is no sequence: [0]; else [0, ..., R].
    return tf.concat([[0], inner, tf.fill([tf.minimum(count, 1)], count)], axis=0)


_scope = threading.local()


@contextlib.contextmanager
def static_shapes():
    """Inside, models choose a layout of static shapes: what is traced will be compiled by XLA."""
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
