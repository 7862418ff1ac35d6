"""One long row among many short ones needs no memory for a matrix."""

import pathlib
import resource

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.base.ragged_rows import joined_strings, kept_values, repeated, row_ids
from bert_tf.text import BertTokenizer, SubwordTokenizer
from tests.text.subwords import bpe_definition, unigram_definition

LENGTHS = [[], [0], [0, 0, 3, 0], [1, 1], [7], [300, *[0, 1, 2] * 50]]
_GIB = 1 << 30


@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_rows_are_those_of_tensorflow(lengths):
    values = np.arange(sum(lengths))
    rows = tf.RaggedTensor.from_row_lengths(values, np.array(lengths, np.int64))
    np.testing.assert_array_equal(row_ids(rows.row_splits), rows.value_rowids())
    kept = tf.constant(np.random.default_rng(0).random(len(values)) < 0.5)
    expected = tf.ragged.boolean_mask(rows, rows.with_values(kept))
    assert kept_values(rows, kept).to_list() == expected.to_list()
    words = rows.with_values(tf.strings.as_string(rows.values))
    expected = tf.strings.reduce_join(words, axis=1, separator="|")
    np.testing.assert_array_equal(joined_strings(words, "|"), expected)
    indices, repetitions = repeated(rows.row_lengths())
    np.testing.assert_array_equal(indices, rows.value_rowids())
    np.testing.assert_array_equal(repetitions, values - np.repeat(rows.row_starts(), lengths))


def _word_pieces():
    return BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "né", "a"])


def _byte_pairs():
    return SubwordTokenizer(bpe_definition([("Ã", "©")]))


def _unigrams():
    return SubwordTokenizer(unigram_definition([("▁", -2.0), ("▁né", -3.0), ("é", -1.0)]))


@pytest.mark.parametrize("make", [_word_pieces, _byte_pairs, _unigrams])
def test_a_long_text_among_short_ones(make):
    tokenizer = make()
    texts = ["né a"] * 20_000 + ["né " * 20_000]  # 60,000 characters: a matrix has 9 GiB
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2 * _GIB, limits[1]))
    try:
        pieces = tokenizer.tokenize_with_offsets(texts)
        ids = tokenizer.tokenize(texts)
        texts = tokenizer.detokenize(ids)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    np.testing.assert_array_equal(pieces.ids.values, ids.values)
    assert len(texts[-1].numpy()) > 60_000
    assert pieces.char_ends[-1, -1].numpy() >= 60_000 - 1
