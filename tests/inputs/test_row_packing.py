"""Packed rows: nothing lost, nothing cut, shapes static."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError, DataError
from bert_tf.inputs.row_packing import first_fit, pack_rows, padding_share

ROW, SEQUENCES, PREDICTIONS, PAD = 32, 4, 6, 9


def test_first_fit_keeps_the_limits():
    generator = np.random.default_rng(0)
    for open_rows in (1, 3, 64):
        lengths = generator.integers(3, ROW + 1, 500)
        predictions = generator.integers(0, 4, 500)
        rows, columns, slots = first_fit(
            lengths, ROW, SEQUENCES, predictions, PREDICTIONS, open_rows
        )
        assert sorted(set(rows)) == list(range(rows.max() + 1))
        for row in range(rows.max() + 1):
            inside = np.flatnonzero(rows == row)
            ends = columns[inside] + lengths[inside]
            np.testing.assert_array_equal(columns[inside], np.append(0, ends[:-1]))
            assert ends[-1] <= ROW and predictions[inside].sum() <= PREDICTIONS
            assert slots[inside].tolist() == list(range(len(inside)))
            assert len(inside) <= SEQUENCES
    again = first_fit(lengths, ROW, SEQUENCES, predictions, PREDICTIONS, open_rows)
    np.testing.assert_array_equal(again, (rows, columns, slots))


def test_first_fit_fills_rows():
    lengths = np.random.default_rng(0).integers(3, 20, 2000)
    rows = first_fit(lengths, 64, 16).rows
    assert lengths.sum() / ((rows.max() + 1) * 64) > 0.96
    assert first_fit(np.array([], np.int64), 64, 16).rows.size == 0
    rows, columns, slots = first_fit(np.array([5, 6, 3, 2]), 8, 4)  # to the last column
    assert rows.tolist() == [0, 1, 0, 1] and columns.tolist() == [0, 0, 5, 6]
    assert slots.tolist() == [0, 0, 1, 1]


def test_too_long_for_a_row():
    with pytest.raises(DataError, match="Received: 33 tokens"):
        first_fit(np.array([3, 33]), ROW, SEQUENCES)
    with pytest.raises(DataError, match="7 predictions"):
        first_fit(np.array([3]), ROW, SEQUENCES, np.array([7]), PREDICTIONS)


def sequences(count=200, width=24, masks=5):
    """Padded batches; the tokens of sequence i are i * 100 + column."""
    generator = np.random.default_rng(2)
    lengths = generator.integers(3, width + 1, count)
    columns = np.arange(width)
    real = columns < lengths[:, None]
    token_ids = np.where(real, 100 * np.arange(1, count + 1)[:, None] + columns, PAD)
    used = np.arange(masks) < np.minimum(lengths // 5 + 1, masks)[:, None]
    positions = np.where(used, np.minimum(np.arange(masks) * 3, lengths[:, None] - 1), 0)
    features = {
        "token_ids": token_ids.astype(np.int32),
        "segment_ids": (real & (columns >= lengths[:, None] // 2)).astype(np.int32),
        "padding_mask": real,
        "masked_positions": positions.astype(np.int32),
    }
    labels = {
        "masked_ids": np.where(used, np.take_along_axis(token_ids, positions, 1), 0).astype(
            np.int32
        ),
        "masked_weights": used.astype(np.float32),
        "next_sentence_labels": generator.integers(0, 2, count).astype(np.int32),
    }
    return features, labels


def unpacked(batch):
    """The sequences of packed rows, by their number."""
    features, labels = ({k: v.numpy() for k, v in part.items()} for part in batch)
    for row in range(len(features["token_ids"])):
        ids = features["sequence_ids"][row]
        np.testing.assert_array_equal(ids > 0, features["padding_mask"][row])
        assert (features["token_ids"][row][ids == 0] == PAD).all()
        weights = labels["next_sentence_weights"][row]
        assert weights.tolist() == [float(slot < ids.max()) for slot in range(SEQUENCES)]
        masks = labels["masked_weights"][row] > 0
        assert (np.diff(masks.astype(int)) <= 0).all()
        at = features["masked_positions"][row][masks]
        np.testing.assert_array_equal(
            features["token_ids"][row][at], labels["masked_ids"][row][masks]
        )
        for slot in range(ids.max()):
            columns = np.flatnonzero(ids == slot + 1)
            start = features["sequence_starts"][row, slot]
            np.testing.assert_array_equal(columns, start + np.arange(len(columns)))
            np.testing.assert_array_equal(
                features["positions"][row][columns], np.arange(len(columns))
            )
            tokens = features["token_ids"][row][columns]
            yield (
                int(tokens[0]) // 100 - 1,
                dict(
                    tokens=tokens.tolist(),
                    segments=features["segment_ids"][row][columns].tolist(),
                    masks=(at[ids[at] == slot + 1] - start).tolist(),
                    label=labels["next_sentence_labels"][row, slot],
                ),
            )


def test_every_sequence_comes_once_and_whole():
    features, labels = sequences()
    dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(7)
    packed = pack_rows(
        dataset, 4, ROW, SEQUENCES, PREDICTIONS, window=64, pad_token_id=PAD, drop_remainder=False
    )
    found = {}
    for batch in packed:
        for number, sequence in unpacked(batch):
            assert number not in found
            found[number] = sequence
    assert sorted(found) == list(range(200))
    for number, sequence in found.items():
        real = features["padding_mask"][number]
        used = labels["masked_weights"][number] > 0
        assert sequence == dict(
            tokens=features["token_ids"][number][real].tolist(),
            segments=features["segment_ids"][number][real].tolist(),
            masks=features["masked_positions"][number][used].tolist(),
            label=labels["next_sentence_labels"][number],
        )


def test_shapes_are_static_and_padding_shrinks():
    dataset = tf.data.Dataset.from_tensor_slices(sequences()).batch(7)
    packed = pack_rows(dataset, 4, ROW, SEQUENCES, PREDICTIONS)
    features, labels = packed.element_spec
    shapes = {name: tuple(spec.shape) for name, spec in {**features, **labels}.items()}
    assert shapes == {
        **dict.fromkeys(
            ["token_ids", "segment_ids", "padding_mask", "sequence_ids", "positions"], (4, ROW)
        ),
        **dict.fromkeys(
            ["sequence_starts", "next_sentence_labels", "next_sentence_weights"], (4, SEQUENCES)
        ),
        **dict.fromkeys(["masked_positions", "masked_ids", "masked_weights"], (4, PREDICTIONS)),
    }
    assert padding_share(packed, 5) < 0.3 < 0.4 < padding_share(dataset, 5)
    assert padding_share(dataset.take(0), 5) == 0


def test_bad_options():
    dataset = tf.data.Dataset.from_tensor_slices(sequences()).batch(7)
    with pytest.raises(ConfigError, match="max_sequences=0"):
        pack_rows(dataset, 4, ROW, 0, PREDICTIONS)
