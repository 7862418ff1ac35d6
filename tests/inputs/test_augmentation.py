"""Augmentation changes texts as its rates say; negative pairs are none of the positive ones."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import DataError, UserError
from bert_tf.inputs.augmentation import TextAugmentation, augment
from bert_tf.inputs.negative_pairs import negative_pairs, pairs_by_class

WORDS = [f"w{index}" for index in range(50)]
TEXT = " ".join(WORDS)


def changed(count=40, **options):
    batches = tf.data.Dataset.from_tensor_slices(([TEXT] * count, list(range(count)))).batch(8)
    texts, labels = zip(*augment(batches, TextAugmentation(**options)))
    assert np.concatenate(labels).tolist() == list(range(count))
    return [text.decode().split() for text in np.concatenate(texts)]


def test_insertion_adds_words_of_the_text():
    rows = changed(insertion=0.2)
    added = np.array([len(row) - 50 for row in rows])
    assert 8 < added.mean() < 12 and added.std() > 0
    for row in rows:
        remaining = iter(row)  # the text itself is still there, in its order
        assert all(word in remaining for word in WORDS) and set(row) == set(WORDS)


def test_swap_keeps_the_words_and_deletion_their_order():
    swapped = changed(swap=0.2)
    assert all(sorted(row) == sorted(WORDS) for row in swapped)
    assert np.mean([row != WORDS for row in swapped]) > 0.9
    deleted = changed(deletion=0.2)
    assert 38 < np.mean([len(row) for row in deleted]) < 42
    assert all(row == [word for word in WORDS if word in row] for row in deleted)


def test_every_epoch_differs_and_a_seed_repeats():
    batches = tf.data.Dataset.from_tensor_slices(([TEXT] * 4, [0] * 4)).batch(4)
    augmentation = TextAugmentation(insertion=0.2, swap=0.2, deletion=0.2, seed=3)
    first, second = (next(iter(augment(batches, augmentation)))[0].numpy() for _ in range(2))
    again = next(iter(augment(batches, TextAugmentation(0.2, 0.2, 0.2, seed=3))))[0].numpy()
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_empty_texts_pairs_and_characters():
    texts = tf.constant(["", "word", "", "我忘带伞了", ""])
    for unit in ("word", "character"):
        result = TextAugmentation(0.9, 0.5, 0.9, unit=unit)(texts).numpy()
        assert [bool(text) for text in result] == [False, True, False, True, False]
    pairs = tf.data.Dataset.from_tensor_slices(((["a b c"], ["d e f"]), [1])).batch(1)
    (first, second), label = next(iter(augment(pairs, TextAugmentation(swap=0.9))))
    assert sorted(first.numpy()[0].split()) == [b"a", b"b", b"c"] and label.numpy() == [1]
    assert sorted(second.numpy()[0].split()) == [b"d", b"e", b"f"]


def test_wrong_rates_are_refused():
    with pytest.raises(UserError, match=r"must be in \[0, 1\).*swap=1.0"):
        TextAugmentation(swap=1.0)
    with pytest.raises(UserError, match="unit='line'"):
        TextAugmentation(swap=0.1, unit="line")


def test_negative_pairs():
    positives = [(f"a{i % 20}", f"b{i}") for i in range(60)]
    drawn = negative_pairs(positives, per_pair=3, seed=1)
    assert len(drawn) == 180 and not set(drawn) & set(positives)
    assert [first for first, _ in drawn] == [first for first, _ in positives for _ in range(3)]
    for start in range(0, 180, 3):
        assert len(set(drawn[start : start + 3])) == 3
    assert drawn == negative_pairs(positives, per_pair=3, seed=1)
    with pytest.raises(DataError, match="at least 1 second texts"):
        negative_pairs([("a", "x"), ("a", "y")])


def test_pairs_by_class():
    texts = [f"{'abc'[i % 3]}{i}" for i in range(30)] + ["a0", "both", "both"]
    labels = ["abc"[i % 3] for i in range(30)] + ["a", "a", "b"]
    (firsts, seconds), are_same = pairs_by_class(texts, labels, per_text=3, seed=1)
    assert len(firsts) == len(seconds) == len(are_same) == 6 * len(texts)
    assert firsts == [text for text in texts for _ in range(6)]
    assert are_same == [1, 1, 1, 0, 0, 0] * len(texts)
    classes = {text: {label for t, label in zip(texts, labels) if t == text} for text in texts}
    for row, (text, label) in enumerate(zip(texts, labels)):
        partners = seconds[6 * row : 6 * row + 6]
        assert len(set(partners)) == 6 and text not in partners
        assert [label in classes[partner] for partner in partners] == [True] * 3 + [False] * 3
    assert (firsts, seconds) == pairs_by_class(texts, labels, per_text=3, seed=1)[0]
    assert seconds != pairs_by_class(texts, labels, per_text=3, seed=2)[0][1]
    assert pairs_by_class([], []) == (([], []), [])
    for given, kinds, message in (
        (["a", "b", "c"], [0, 0, 1], "1 other texts of the same class for each of 1"),
        (["a", "b"], [0, 0], "1 other texts without this class for each of 0"),
        (["a", "a", "c", "d"], [0, 0, 1, 1], "1 other texts of the same class for each of 0"),
    ):
        with pytest.raises(DataError, match=f"`texts` must have at least {message}"):
            pairs_by_class(given, kinds)
    with pytest.raises(UserError, match="`per_text` must be at least 1"):
        pairs_by_class(["a", "b"], [0, 1], per_text=0)
    with pytest.raises(UserError, match="`labels` must have one class for each text"):
        pairs_by_class(["a", "b"], [0])
