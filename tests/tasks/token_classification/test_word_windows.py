"""Words to windows of pieces, and a value a word back again."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import UserError
from bert_tf.inputs.batches import sorted_batches
from bert_tf.inputs.columns import flat_strings
from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_rows import batches_of_numbers
from bert_tf.tasks.token_classification.word_windows import WORD_STARTS, WordWindows, word_lists


@pytest.fixture(scope="module")
def tokenizer(tiny_vocabulary):
    return BertTokenizer(tiny_vocabulary)


def test_labels_stand_on_first_pieces(tokenizer):
    words = flat_strings([["good", "abc", "!?", ""], [], ["film"]])
    windows = WordWindows(tokenizer, *words, max_length=16, has_word_starts=True)
    assert len(windows) == 2
    labels = windows.labels(np.array([1, 2, 3, 4, 5]))
    n = IGNORED
    # [CLS] good a ##b ##c [UNK] [UNK] [UNK] [SEP]
    assert labels.to_list() == [[n, 1, 2, n, n, 3, n, 4, n], [n, 5, n]]
    numbers = tf.data.Dataset.range(2).batch(2)
    ((features, targets),) = batches_of_numbers(windows, (labels,), numbers)
    ids = features["token_ids"].numpy()
    assert ids[0].tolist()[:2] == [tokenizer.cls_token_id, tokenizer.token_to_id("good")]
    assert ids[0, 7] == tokenizer.unk_token_id  # a word without pieces has a tag too
    assert ids[1, 3:].tolist() == [tokenizer.pad_token_id] * 6
    assert features["padding_mask"].numpy().sum(axis=1).tolist() == [9, 3]
    np.testing.assert_array_equal(features[WORD_STARTS], targets.numpy() != IGNORED)


def test_any_sentences_are_put_together_again(tokenizer):
    generator = random.Random(1)
    for _ in range(20):
        sentences = [
            [
                generator.choice(["good", "abcdefghijklmnop", "", ".", "xy"])
                for _ in range(generator.choice([0, 1, 5, 40]))
            ]
            for _ in range(8)
        ]
        words, max_length = flat_strings(sentences), generator.randint(3, 20)
        windows = WordWindows(tokenizer, *words, max_length, has_word_starts=True)
        count = sum(map(len, sentences))
        if not count:
            continue
        values = np.arange(count)
        labels = windows.labels(values)
        dense = labels.to_tensor(IGNORED).numpy()
        np.testing.assert_array_equal(windows.marked_values(dense), values)
        assert windows.item_splits.tolist() == np.cumsum([0, *map(len, sentences)]).tolist()
        # In the order of the lengths too.
        batches = sorted_batches(windows, token_budget=60)
        places = np.argsort(np.concatenate(batches))
        rows = [row for numbers in batches for row in windows.batch(numbers)[WORD_STARTS]]
        counts = np.array([row.sum() for row in rows])[places]
        assert counts.tolist() == (dense != IGNORED).sum(axis=1).tolist()


def cut_words(lengths, breaks, limit):
    """The ends of the parts: after a clause in the second half, or where a part is full."""
    ends, start = [], 0
    while start < len(lengths):
        end = start
        while end < len(lengths) and sum(lengths[start : end + 1]) <= limit:
            end += 1
        if end < len(lengths):
            half = start + (end - start) // 2
            end = next((place for place in range(end, half, -1) if breaks[place - 1]), end)
        ends.append(end)
        start = end
    return ends


def test_cut_at_the_end_of_a_clause(tokenizer):
    generator = random.Random(2)
    words = ["good", "abc", "abcd", "film.", ".", ""]
    sentences = [
        [generator.choice(words) for _ in range(generator.randint(0, 30))] for _ in range(60)
    ]
    sizes = dict(zip(words, np.maximum(1, tokenizer.tokenize(words).row_lengths())))
    for limit in (5, 6, 9, 12):
        windows = WordWindows(tokenizer, *flat_strings(sentences), max_length=limit + 2)
        expected = []
        for number, sentence in enumerate(sentences):
            lengths = [min(sizes[word], limit) for word in sentence]
            start = 0
            for end in cut_words(lengths, [word.endswith(".") for word in sentence], limit):
                expected.append((number, sum(lengths[start:end]) + 2))
                start = end
        assert list(zip(windows.examples, windows.lengths())) == expected
    for words, lengths in (
        (["good", "good", "."] + ["good"] * 5, [5, 7]),
        (["."] + ["good"] * 7, [7, 5]),  # too early a clause
    ):
        windows = WordWindows(tokenizer, *flat_strings([words]), max_length=7)
        assert list(windows.lengths()) == lengths


def test_words_must_be_lists_of_strings():
    with pytest.raises(UserError, match="sentence 1"):
        word_lists([["a"], "bc"])
    with pytest.raises(UserError, match="sentence 0"):
        word_lists([["a", None]])
