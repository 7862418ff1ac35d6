"""TokenLayout: which positions of a batch are rows, and the way there and back."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone
from bert_tf.layers.attention.token_layout import TokenLayout, packed_places, real_tokens_first
from bert_tf.layers.pooling import first_columns
from bert_tf.ops.native import needs_static_shapes, static_shapes


def packed_to_size(mask):
    """Makes a layout with two rows of padding, if the batch has as many."""
    return TokenLayout.packed_to_size(mask, packed_places(mask, tf.math.count_nonzero(mask) + 2))


LAYOUTS = {
    "padded": TokenLayout.padded,
    "packed": TokenLayout.packed,
    "packed in place": TokenLayout.packed_in_place,
    "packed to a size": packed_to_size,
}
# Padding right, left, between tokens, nowhere and everywhere.
MASKS = {
    "right": [[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]],
    "left": [[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]],
    "between": [[1, 0, 1, 0, 1], [0, 1, 0, 1, 0]],
    "nowhere": [[1, 1], [1, 1], [1, 1]],
    "everywhere": [[0, 0, 0]],
    "an empty row first": [[0, 0], [1, 1], [0, 0], [1, 0]],
    "no columns": [[], []],
    "no rows": np.zeros([0, 4]),
}


def mask_of(name):
    return np.array(MASKS[name], bool)


every_mask = pytest.mark.parametrize("mask", [mask_of(name) for name in MASKS], ids=MASKS)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


@every_mask
@every_layout
@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])
def test_there_and_back_leaves_zeros_for_padding(layout, mask, is_traced):
    values = np.random.default_rng(0).normal(size=[*mask.shape, 3]).astype("float32")

    def round_trip(mask, values):
        made = layout(mask)
        return made.to_batch(made.to_rows(values))

    if is_traced:
        unknown = tf.TensorSpec([None, None], tf.bool), tf.TensorSpec([None, None, 3])
        round_trip = tf.function(round_trip, input_signature=unknown, autograph=False)
    batch = round_trip(tf.constant(mask), tf.constant(values))
    np.testing.assert_array_equal(batch, values * mask[:, :, np.newaxis])


@every_mask
@every_layout
def test_gradients_of_there_and_back_are_those_of_real_tokens(layout, mask):
    random = np.random.default_rng(1)
    values, factors = random.normal(size=[2, *mask.shape, 3]).astype("float32")
    values, made = tf.constant(values), layout(tf.constant(mask))
    with tf.GradientTape() as tape:
        tape.watch(values)
        loss = tf.reduce_sum(made.to_batch(made.to_rows(values)) * factors)
    gradient = tf.convert_to_tensor(tape.gradient(loss, values))
    np.testing.assert_array_equal(gradient, factors * mask[:, :, np.newaxis])


def assert_neighbours(layout, sequences):
    """Those up to two tokens away; `sequences` [B, T] are their numbers, 0 for padding."""
    numbers = np.arange(1, sequences.size + 1, dtype=np.float32).reshape(sequences.shape)
    rows = layout.to_rows(tf.constant(numbers))
    around = tf.gather(tf.concat([rows, [0.0]], axis=0), layout.neighbours(2))  # [R, 5]
    expected = np.zeros([*sequences.shape, 5])
    rows_and_numbers = ((row, n) for row, line in enumerate(sequences) for n in {*line} - {0})
    for row, number in rows_and_numbers:
        columns = np.flatnonzero(sequences[row] == number)
        padded = np.pad(numbers[row, columns], 2)
        for place, column in enumerate(columns):
            expected[row, column] = padded[place : place + 5]
    np.testing.assert_array_equal(layout.to_batch(around), expected)


@every_mask
@every_layout
def test_neighbours(layout, mask):
    assert_neighbours(layout(tf.constant(mask)), mask.astype(int))


@pytest.mark.parametrize("layout", [TokenLayout.padded, TokenLayout.packed])
def test_neighbours_are_of_the_same_sequence(layout):
    sequences = np.array([[1, 1, 2, 2, 2, 3], [4, 0, 0, 0, 0, 0], [5, 5, 6, 0, 0, 0]])
    assert_neighbours(layout(tf.constant(sequences > 0), tf.constant(sequences)), sequences)


@every_layout
def test_rows_of_padding_that_are_not_finite_become_zeros(layout):
    mask = mask_of("between")
    values = np.where(mask[:, :, np.newaxis], np.float32(2), np.float32(np.nan)) * np.ones(3)
    made = layout(tf.constant(mask))
    batch = made.to_batch(made.to_rows(tf.constant(values, tf.float32)))
    np.testing.assert_array_equal(batch, 2 * mask[:, :, np.newaxis] * np.ones(3))


@every_mask
def test_packed_rows_are_the_real_tokens_in_order(mask):
    layout = TokenLayout.packed(tf.constant(mask))
    np.testing.assert_array_equal(layout.real_tokens, np.flatnonzero(mask))
    np.testing.assert_array_equal(layout.row_splits, [0, *np.cumsum(mask.sum(axis=1))])
    columns = np.broadcast_to(np.arange(mask.shape[1]), mask.shape)
    np.testing.assert_array_equal(layout.to_rows(tf.constant(columns)), columns[mask])
    assert TokenLayout.padded(tf.constant(mask)).row_splits is None


@every_mask
@pytest.mark.parametrize("isolate_padding", [True, False])
def test_packed_in_place_keeps_all_rows_and_real_tokens_form_one_sequence(mask, isolate_padding):
    layout = TokenLayout.packed_in_place(tf.constant(mask), isolate_padding=isolate_padding)
    rows, splits = layout.real_tokens.numpy(), layout.row_splits.numpy()
    assert sorted(rows) == list(range(mask.size))
    assert splits[0] == 0 and splits[-1] == mask.size and (np.diff(splits) >= 0).all()
    is_real = mask.ravel()[rows]
    sequences = [part for part in np.split(np.arange(mask.size), splits[1:-1]) if len(part)]
    for part in sequences:
        assert len(set(is_real[part])) == 1  # padding is never among real tokens
        assert len({row // mask.shape[1] for row in rows[part]}) == 1
        if not is_real[part[0]] and isolate_padding:
            assert len(part) == 1
    real = [rows[part].tolist() for part in sequences if is_real[part[0]]]
    expected = [(start + np.flatnonzero(row)).tolist() for start, row in _with_starts(mask)]
    assert real == [row for row in expected if row]


def _with_starts(mask):
    return zip(np.arange(len(mask)) * mask.shape[1], mask)


@every_mask
def test_places_count_the_real_tokens_of_a_row(mask):
    query, key = TokenLayout.padded(tf.constant(mask)).places()
    expected = np.concatenate([np.arange(row.sum()) for row in mask] or [[]])
    np.testing.assert_array_equal(query[:, 0, :, 0].numpy()[mask], expected)
    np.testing.assert_array_equal(query[:, :, :, 0], key[:, :, 0])


def test_several_sequences_of_a_row_are_apart():
    mask = np.array([[1, 1, 1, 1, 0], [1, 0, 1, 1, 1]], bool)
    ids = np.array([[5, 5, 1, 1, 1], [1, 1, 1, 2, 2]])  # in any order
    layout = TokenLayout.packed(tf.constant(mask), tf.constant(ids))
    np.testing.assert_array_equal(layout.row_splits, [0, 2, 4, 6, 8])
    layout = TokenLayout.padded(tf.constant(mask), tf.constant(ids))
    expected = mask[:, np.newaxis] & (ids[:, :, np.newaxis] == ids[:, np.newaxis])
    np.testing.assert_array_equal(layout.same_sequence()[:, 0], expected)
    query, key = layout.places()  # among the real tokens of a sequence
    np.testing.assert_array_equal(query[:, 0, :, 0].numpy()[mask], [0, 1, 0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(query[:, :, :, 0], key[:, :, 0])


def test_sequences_of_nothing():
    mask = tf.zeros([2, 3], tf.bool)
    layout = TokenLayout.packed(mask, tf.zeros([2, 3], tf.int32))
    np.testing.assert_array_equal(layout.row_splits, [0])


@every_layout
def test_gradients_go_to_real_tokens_only(layout):
    mask = mask_of("between")
    values = tf.Variable(np.random.default_rng(0).normal(size=[*mask.shape, 3]), dtype=tf.float32)
    with tf.GradientTape() as tape:
        made = layout(tf.constant(mask))
        loss = tf.reduce_sum(made.to_batch(made.to_rows(values)) ** 2)
    gradient = tf.convert_to_tensor(tape.gradient(loss, values))
    np.testing.assert_allclose(gradient, 2 * values * mask[:, :, np.newaxis], rtol=1e-6)


def test_shapes_that_are_known_stay_known():
    @tf.function(input_signature=[tf.TensorSpec([4, 6], tf.bool), tf.TensorSpec([4, 6, 3])])
    def shapes(mask, values):
        for layout in LAYOUTS.values():
            rows = layout(mask).to_rows(values)
            assert rows.shape[1:] == (3,)
            assert layout(mask).to_batch(rows).shape == (4, 6, 3)
        return rows

    shapes.get_concrete_function()


@every_mask
def test_first_columns_and_the_order_of_real_tokens(mask):
    if not mask.size:
        return
    first = np.where(mask.any(axis=1), mask.argmax(axis=1), mask.shape[1] - 1)
    np.testing.assert_array_equal(first_columns(tf.constant(mask)), first)
    order = [[*np.flatnonzero(row), *np.flatnonzero(~row)] for row in mask]
    np.testing.assert_array_equal(real_tokens_first(tf.constant(mask)), order)


def test_static_shapes_hold_in_their_block_only():
    assert not needs_static_shapes()
    with pytest.raises(KeyError):
        with static_shapes():
            assert needs_static_shapes()
            raise KeyError
    assert not needs_static_shapes()


@pytest.mark.parametrize("name", ["right", "left", "between", "nowhere"])
def test_rows_of_a_size_are_those_of_a_packed_batch_and_padding(name):
    mask = tf.constant(mask_of(name))
    packed, layout = TokenLayout.packed(mask), packed_to_size(mask)
    count, size = int(packed.row_splits[-1]), int(layout.row_splits[-1])
    assert size == min(count + 2, mask.numpy().size)
    np.testing.assert_array_equal(layout.real_tokens[:count], packed.real_tokens)
    np.testing.assert_array_equal(layout.row_splits[: len(packed.row_splits)], packed.row_splits)
    values = np.where(mask, 1.0, np.nan).astype(np.float32)[..., np.newaxis]
    rows = layout.to_rows(values)  # NaN at the padding
    first = tf.gather(rows, layout.first_rows)
    np.testing.assert_array_equal(first, np.ones([len(values), 1]))
    with tf.GradientTape() as tape:
        tape.watch(rows)
        total = tf.reduce_sum(layout.to_batch(rows) ** 2)
    assert total == count
    np.testing.assert_array_equal(
        tape.gradient(total, rows)[:, 0], [2] * count + [0] * (size - count)
    )


def test_a_batch_with_more_tokens_than_rows_is_refused():
    with pytest.raises(tf.errors.InvalidArgumentError, match="must have at most 2 tokens"):
        packed_places(tf.constant([[True, True], [True, False]]), 2)


def test_much_padding_has_no_longer_sequence_than_a_row(tiny_config):
    """Rotations and tables of places have one for each place of a row."""
    config = dataclasses.replace(tiny_config, position_embedding_type="rotary")
    backbone = BertBackbone(config)
    ids = tf.constant([[2, 5, 0, 0], [2, 7, 8, 0], [2, 0, 0, 0]])
    tokens = {"token_ids": ids, "padding_mask": ids > 0}
    expected = backbone(tokens)
    for size in (6, 9, 12):
        outputs = backbone({**tokens, "packed_places": packed_places(ids > 0, size)})
        for name, values in expected.items():
            real = values[ids > 0] if values.shape.rank == 3 else values
            found = outputs[name]
            found = found[ids > 0] if found.shape.rank == 3 else found
            np.testing.assert_allclose(found, real, atol=1e-6)
