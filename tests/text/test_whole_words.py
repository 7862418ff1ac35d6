"""Units of pieces for masking whole words."""

import pytest
import tensorflow as tf

from bert_tf.text import BertTokenizer, whole_word_units

TOKENIZER = BertTokenizer(
    [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "我",
        "用",
        "ip",
        "##hone",
        "手",
        "机",
        "a",
        "。",
    ]
)
TEXTS = ["我用iPhone手机。", "", "a 手机"]


def test_pieces_of_a_word_are_one_unit():
    ids, units = whole_word_units(TOKENIZER, TEXTS)
    assert units.to_list() == [[0, 1, 2, 2, 3, 4, 5], [], [0, 1, 2]]
    assert ids.to_list() == TOKENIZER.tokenize(TEXTS).to_list()


def test_segmenter_joins_ideographs():
    words = {TEXTS[0]: ["我", "用", "iPhone", "手机", "。"], "": [], "a 手机": ["a", " ", "手机"]}
    dataset = (
        tf.data.Dataset.from_tensor_slices(TEXTS)
        .batch(3)
        .map(lambda texts: whole_word_units(TOKENIZER, texts, words.get)[1])
    )
    assert next(iter(dataset)).to_list() == [[0, 1, 2, 2, 3, 3, 4], [], [0, 1, 1]]


def test_segmenter_must_keep_the_text():
    with pytest.raises(Exception, match="give the text"):
        whole_word_units(TOKENIZER, ["手机"], lambda text: ["手"])
