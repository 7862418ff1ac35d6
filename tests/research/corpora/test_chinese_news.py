"""The tagged news: entities, units, splits, documents."""

import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.token_classification.files import TaggedSentence, read_word_tag
from research.corpora.chinese_news import (
    documents_of,
    entity_spans,
    split_without_repetitions,
    tagged_units,
)


def sentence(text):
    return TaggedSentence(*map(list, zip(*(field.split("/") for field in text.split()))))


def test_entities_over_characters_and_words():
    line = sentence(
        "１２月/t 李/nr 鹏/nr 乔/nr 石/nr 克林顿/nr 欧阳/nr 修/nr 北京/ns 东城区/ns 。/w"
    )
    assert [span[:2] for span in entity_spans(line)] == [
        (1, 3),
        (3, 5),
        (5, 6),
        (6, 8),
        (8, 9),
        (9, 10),
    ]
    units = tagged_units(line)
    assert units.words[:5] == ["１２", "月", "李", "鹏", "乔"]
    assert units.tags[:7] == ["O", "O", "B-nr", "I-nr", "B-nr", "I-nr", "B-nr"]
    assert tagged_units(line, unit="word").tags[8:] == ["B-ns", "B-ns", "O"]
    assert tagged_units(line, "pos") == line
    assert tagged_units(sentence("江/nr 泽民/nr"), "segmentation") == (
        ["江", "泽", "民"],
        ["B-W", "B-W", "I-W"],
    )
    with pytest.raises(UserError, match="task"):
        tagged_units(line, "chunks")


def test_documents_begin_with_headlines():
    lines = [
        "新年/t 讲话/n",
        "江/nr 泽民/nr",
        "同胞/n 们/k ！/w 朋友/n 们/k 。/w ”/w",
        "结束/v 了/u 。/w",
        "简讯/n",
        "完/v 。/w",
    ]
    assert documents_of([sentence(line) for line in lines]) == [
        ["新年讲话", "江泽民", "同胞们！", "朋友们。”", "结束了。"],
        ["简讯", "完。"],
    ]


def test_the_corpus(materials):
    splits = split_without_repetitions(read_word_tag(materials / "chinese_text" / "199801.txt"))
    texts = {name: ["".join(s.words) for s in part] for name, part in splits.items()}
    assert not set(texts["train"]) & set(texts["test"]) and not set(texts["dev"]) & set(
        texts["train"]
    )
    assert len(splits["train"]) > 7 * len(splits["test"])
    for part in splits.values():
        for line in part[:200]:
            words, tags = tagged_units(line)
            assert "".join(words) == "".join(line.words) and len(words) == len(tags)
    assert len(documents_of(splits["train"])) > 1000
