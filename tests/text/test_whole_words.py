"""Units of pieces for masking whole words."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inputs.masking import mask_tokens
from bert_tf.text import BertTokenizer, SubwordTokenizer, whole_word_units
from tests.text.subwords import bpe_definition, gemma_definition, unigram_definition

pytestmark = pytest.mark.usefixtures("eagerly")

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


PIECES = [("▁", -2.0), ("▁good", -3.0), ("手机", -4.0), ("很好", -4.0), ("▁中", -4.0)]
PIECES += [(char, -9.0) for char in "手机很好中文。gokกขかな"]
WORD_STARTS = {
    # The pieces of a text, and where its words begin. One `▁` is before all of a Chinese sentence.
    "Chinese": ("手机很好。手", [("▁", 1), ("手机", 0), ("很好", 1), ("。", 0), ("手", 1)]),
    "a space": ("中 手 go", [("▁中", 1), ("▁", 1), ("手", 0), ("▁", 1), ("g", 0), ("o", 0)]),
    "mixed": ("good手k", [("▁good", 1), ("手", 1), ("k", 0)]),
    "Thai and kana": ("กขかな", [("▁", 1), ("ก", 0), *((char, 1) for char in "ขかな")]),
}


@pytest.mark.parametrize("case", WORD_STARTS)
def test_words_of_a_vocabulary_with_spaces(case):
    """A text without spaces must not be masked as one word, or never."""
    tokenizer = SubwordTokenizer(unigram_definition(PIECES))
    text, expected = WORD_STARTS[case]
    ids, units = whole_word_units(tokenizer, [text, "good", text])
    assert [tokenizer.vocabulary[i] for i in ids[0].numpy()] == [piece for piece, _ in expected]
    numbers = (np.cumsum([starts for _, starts in expected]) - 1).tolist()
    assert units.to_list() == [numbers, [0], numbers]


def test_segmenter_joins_pieces_of_ideographs():
    tokenizer = SubwordTokenizer(unigram_definition([p for p in PIECES if p[0] != "手机"]))
    units = whole_word_units(tokenizer, ["手机很好"], lambda text: ["手机", "很好"])[1]
    assert units.to_list() == [[0, 0, 0, 1]]  # ▁ 手 机 很好


def test_bytes_of_ideographs():
    """`Ġ` in the place of `▁`; an ideograph may be three pieces."""
    byte_pairs = SubwordTokenizer(bpe_definition([["æ", "īĭ"], ["ī", "ĭ"], ["æ", "ľ"]]))
    texts = ["手机 手a", "é"]
    ids, units = whole_word_units(byte_pairs, texts)
    assert [byte_pairs.vocabulary[i] for i in ids[0].numpy()] == ["æīĭ", "æľ", "º", "Ġ", "æīĭ", "a"]
    assert units.to_list() == [[0, 1, 1, 2, 2, 2], [0, 0]]
    characters = SubwordTokenizer(gemma_definition([], "a手"))
    ids, units = whole_word_units(characters, ["手a机 手"])
    assert units.to_list() == [[0, 0, 1, 1, 1, 2, 2]]  # 手 a <0xE6> <0x9C> <0xBA> ▁ 手


def test_words_of_a_chinese_sentence_are_masked():
    tokenizer = SubwordTokenizer(unigram_definition(PIECES))
    tokens = tokenizer(["手机很好。" * 8])
    ids = tokens["token_ids"]
    special = [tokenizer.cls_token_id, tokenizer.sep_token_id]
    masked = mask_tokens(
        ids,
        maskable=~np.isin(ids, special),
        lengths=tf.constant([ids.shape[1]]),
        streams=tf.constant([0], tf.int64),
        seed=3,
        mask_token_id=tokenizer.mask_token_id,
        vocab_size=tokenizer.vocab_size,
        max_predictions=9,
        masking="whole_word",
        word_starts=tokenizer.word_starts(ids),
    )
    assert tf.reduce_sum(masked.masked_weights) == round(0.15 * ids.shape[1])
