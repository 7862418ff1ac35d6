"""The tokens that the encoder computes on, and their positions in the `[B, T]` batch.

Every layer inside the encoder works on rows, `[R, H]`. A layout defines the rows:

- packed: R is the number of real tokens. Padding is dropped before the encoder and restored, as
  zeros, after it. Padding may be anywhere (right, left, between tokens); every token keeps its
  position.
- padded: R = B * T. Shapes are static, as XLA and TPUs require, and attention masks the padding.
- packed in place: R = B * T, but attention is computed as for packed rows.
- packed to a size: R is static, the most tokens of any batch. Some rows at the end are padding.

An `ops.AttentionRule`, not the layout, says which rows of its sequence a row attends to.
"""

import dataclasses

import tensorflow as tf


@dataclasses.dataclass(frozen=True, eq=False)
class TokenLayout:
    """Maps between `[B, T, ...]` and rows `[R, ...]`."""

    padding_mask: tf.Tensor  # bool [B, T], True for real tokens
    # int32 [R], the flat index of every row in [B * T]. None if padded.
    real_tokens: tf.Tensor | None = None
    # int32 [sequences + 1], the first row of each sequence, then R. None if padded.
    row_splits: tf.Tensor | None = None
    # int32 [B, T], the sequence of each token if a row of the batch contains several sequences.
    sequence_ids: tf.Tensor | None = None
    has_padding_rows: bool = True  # whether padding is among the rows
    first_rows: tf.Tensor | None = None  # int32 [B], of each row of the batch, if packed to a size
    # int32 [B * T], the row of each flat index, if packed in place.
    rows_of_tokens: tf.Tensor | None = None

    @property
    def length(self) -> tf.Tensor:
        """The number of columns of the batch, T."""
        return tf.shape(self.padding_mask)[1]

    @classmethod
    def padded(
        cls, padding_mask: tf.Tensor, sequence_ids: tf.Tensor | None = None
    ) -> "TokenLayout":
        """Makes a layout in which all `B * T` positions are rows."""
        return cls(padding_mask, sequence_ids=sequence_ids)

    @classmethod
    def packed(
        cls, padding_mask: tf.Tensor, sequence_ids: tf.Tensor | None = None
    ) -> "TokenLayout":
        """Makes a layout in which only the real tokens are rows.

        The tokens of a sequence must be contiguous.
        """
        real_tokens = tf.cast(tf.where(tf.reshape(padding_mask, [-1])), tf.int32)  # [B*T] -> [R, 1]
        real_tokens = tf.squeeze(real_tokens, axis=1)  # -> [R]
        if sequence_ids is None:
            lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)  # [B, T] -> [B]
            row_splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)  # [B + 1]
        else:
            row_splits = _starts_of_runs(real_tokens, sequence_ids)
        return cls(padding_mask, real_tokens, row_splits, sequence_ids, False)

    @classmethod
    def packed_in_place(
        cls, padding_mask: tf.Tensor, isolate_padding: bool = True
    ) -> "TokenLayout":
        """Makes a packed layout in which all `B * T` positions are rows, for XLA's static shapes.

        The real tokens of a row of the batch come first. Its padding forms separate sequences, one
        for each position, so that attention costs only as much as for the real tokens. Without
        `isolate_padding`, the padding of a row of the batch forms one sequence. This is for a GPU,
        whose kernel needs the same time for a sequence of one row as for one of 64 rows.
        """
        batch, length = tf.unstack(tf.shape(padding_mask))
        first = tf.range(batch)[:, tf.newaxis] * length  # [B, 1]
        order = real_tokens_first(padding_mask)  # [B, T]
        counts = tf.cumsum(tf.cast(padding_mask, tf.int32), axis=1)  # [B, T]
        lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1, keepdims=True)  # [B, 1]
        places = tf.where(padding_mask, counts - 1, lengths + tf.range(length) - counts)  # [B, T]
        # T sequences: the first has `lengths` rows, then come empty ones, then one per padding.
        if isolate_padding:
            columns = tf.range(length)
            starts = tf.where(columns == 0, 0, tf.maximum(columns, lengths))  # [B, T]
        else:
            starts = tf.concat([tf.zeros_like(lengths), lengths], axis=1)  # [B, 2]
        row_splits = tf.concat([tf.reshape(first + starts, [-1]), [batch * length]], axis=0)
        real_tokens, rows = (tf.reshape(first + columns, [-1]) for columns in (order, places))
        return cls(padding_mask, real_tokens, row_splits, rows_of_tokens=rows)

    @classmethod
    def packed_to_size(cls, padding_mask: tf.Tensor, places: tf.Tensor) -> "TokenLayout":
        """Makes a layout whose rows are those of `packed`, then padding up to a static size.

        Args:
            padding_mask: bool `[B, T]`, with a real token in each row.
            places: int32 `[R]`, what `packed_places` returned for it. The padding at the end is in
                sequences of its own, none of which is longer than a row.
        """
        lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)  # [B, T] -> [B]
        splits = tf.concat([[0], tf.cumsum(lengths)], axis=0)  # [B + 1]
        length, size = tf.maximum(tf.shape(padding_mask)[1], 1), tf.size(places)
        padding = splits[-1] + length * tf.range(1, -(-size // length) + 1)
        row_splits = tf.concat([splits, tf.minimum(padding, size)], axis=0)
        return cls(padding_mask, places, row_splits, first_rows=splits[:-1])

    def same_sequence(self) -> tf.Tensor:
        """Returns which keys are real and in the query's sequence: bool `[B, 1, 1 or T, T]`."""
        mask = self.padding_mask[:, tf.newaxis, tf.newaxis, :]  # [B, 1, 1, T]
        if self.sequence_ids is None:
            return mask
        ids = self.sequence_ids
        return mask & (ids[:, :, tf.newaxis] == ids[:, tf.newaxis, :])[:, tf.newaxis]

    def places(self) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the places of queries and keys, int32 `[B, 1, T, 1]` and `[B, 1, 1, T]`.

        They count the real tokens of the sequence, as for packed rows.
        """
        if self.sequence_ids is None:
            places = tf.cumsum(tf.cast(self.padding_mask, tf.int32), axis=1)[:, tf.newaxis]
        else:
            columns = tf.range(tf.shape(self.padding_mask)[1])
            not_later = columns[tf.newaxis, :] <= columns[:, tf.newaxis]  # [T, T]
            earlier = tf.cast(self.same_sequence() & not_later, tf.int32)  # [B, 1, T, T]
            places = tf.reduce_sum(earlier, axis=-1)
        places -= 1  # [B, 1, T]
        return places[..., tf.newaxis], places[:, :, tf.newaxis, :]

    def neighbours(self, reach: int) -> tf.Tensor:
        """Returns the rows of the tokens around each token: int32 `[R, 2 * reach + 1]`.

        They are R before the first and after the last token of a sequence.
        """
        offsets = range(-reach, reach + 1)
        if self.row_splits is None:
            query, key = (places[:, 0] for places in self.places())  # [B, T, 1], [B, 1, T]
            is_key = self.same_sequence()[:, 0]  # [B, 1 or T, T]
            batch, length = tf.unstack(tf.shape(self.padding_mask))
            rows = tf.reshape(tf.range(batch * length), [batch, 1, length])
            found = []
            for offset in offsets:
                is_there = is_key & (key == query + offset)  # [B, T, T]
                found.append(tf.reduce_min(tf.where(is_there, rows, batch * length), axis=2))
            return tf.reshape(tf.stack(found, axis=2), [-1, len(offsets)])  # [B, T, k] -> [R, k]
        none = tf.size(self.real_tokens)
        rows = tf.range(none)
        sequences = tf.searchsorted(self.row_splits, rows, side="right")  # the splits up to a row
        start = tf.gather(self.row_splits, sequences - 1)[:, tf.newaxis]  # [R, 1]
        end = tf.gather(self.row_splits, sequences)[:, tf.newaxis]
        around = rows[:, tf.newaxis] + tf.constant([*offsets])  # [R, k]
        return tf.where((around >= start) & (around < end), around, none)

    def to_rows(self, values: tf.Tensor) -> tf.Tensor:
        """Packs `[B, T, ...]` -> `[R, ...]`."""
        flat = tf.reshape(values, tf.concat([[-1], tf.shape(values)[2:]], axis=0))
        flat.set_shape([None, *values.shape[2:]])
        return flat if self.real_tokens is None else tf.gather(flat, self.real_tokens)

    def to_batch(self, rows: tf.Tensor) -> tf.Tensor:
        """Unpacks `[R, H]` -> `[B, T, H]`, with zeros for padding."""
        batch_shape = tf.shape(self.padding_mask)
        width = rows.shape[-1]
        if self.rows_of_tokens is not None:
            rows = _permuted(rows, self.rows_of_tokens, self.real_tokens)
        elif self.real_tokens is not None:  # [R, H] -> [B * T, H]
            rows = tf.scatter_nd(
                self.real_tokens[:, tf.newaxis], rows, [tf.reduce_prod(batch_shape), width]
            )
        batch = tf.reshape(rows, [batch_shape[0], batch_shape[1], width])  # -> [B, T, H]
        if self.has_padding_rows:
            # Not a product with the mask, because rows of padding may be NaN or infinite.
            batch = tf.where(self.padding_mask[:, :, tf.newaxis], batch, tf.zeros([], batch.dtype))
        batch.set_shape([*self.padding_mask.shape, width])
        return batch


# A separate function, because TensorFlow keeps the graph in which tf.custom_gradient was called.
@tf.function(autograph=False, reduce_retracing=True)
@tf.custom_gradient
def _permuted(rows, order, inverse):
    """Returns the rows `[R, H]` in an order, `[R]`; the gradient is gathered as well.

    XLA computes such a gather where it is read. A scatter writes zeros, a copy of them and the
    result.
    """
    return tf.gather(rows, order), lambda d_rows: (tf.gather(d_rows, inverse), None, None)


def packed_places(padding_mask: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the flat indices in `[B * T]` of real tokens, then of padding: int32 `[R]`.

    R is `size`, or `B * T` if that is less.

    Args:
        padding_mask: bool `[B, T]`, True for real tokens, or `[B, K, T]`.
        size: The number of rows to compute.

    Raises:
        tf.errors.InvalidArgumentError: If there are more real tokens.

    Example:
        >>> packed_places(tf.constant([[True, False], [True, False]]), 3).numpy()
        array([0, 2, 1], dtype=int32)
    """
    count = tf.math.count_nonzero(padding_mask)
    must = f"A batch must have at most {size} tokens, which `jit_compile=True` computes"
    tf.debugging.assert_less_equal(count, tf.cast(size, count.dtype), must)
    places = real_tokens_first(tf.reshape(padding_mask, [1, -1]))[0, :size]  # [B * T] -> [R]
    return tf.cast(places, tf.int32)


def real_tokens_first(padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the columns of each row, int32 `[B, T]`: those of real tokens, then of padding.

    `padding_mask` is bool `[B, T]`, True for real tokens. Both parts are ascending.
    """
    return tf.argsort(tf.cast(~padding_mask, tf.int32), axis=1, stable=True)


def _starts_of_runs(real_tokens, sequence_ids) -> tf.Tensor:
    """Returns row splits `[sequences + 1]` for real tokens `[R]` and sequence ids `[B, T]`."""
    length = tf.shape(sequence_ids)[1]
    ids = tf.gather(tf.reshape(sequence_ids, [-1]), real_tokens)  # [R]
    rows = real_tokens // length
    changed = (ids[1:] != ids[:-1]) | (rows[1:] != rows[:-1])
    count = tf.size(real_tokens)
    inner = tf.cast(tf.where(changed), tf.int32)[:, 0] + 1
    # Without tokens there is no sequence, and the row splits are [0]; otherwise [0, ..., R].
    return tf.concat([[0], inner, tf.fill([tf.minimum(count, 1)], count)], axis=0)
