"""The published data sets: what is in them, and splits without overlap."""

import collections

import pytest

from bert_tf.errors import DataError
from research.corpora import labelled_corpora


def test_chinese_reviews(materials):
    reviews = labelled_corpora.read_chinese_reviews(materials / "chinese_text")
    counts = collections.Counter(label for _, label in reviews)
    # 8,379 and 9,079 distinct ones, of which 47 are in both files.
    assert 8300 < counts["pos"] <= 8379 - 47 and 9000 < counts["neg"] <= 9079 - 47
    splits = labelled_corpora.random_splits(reviews)
    texts = [text for rows in splits.values() for text, _ in rows]
    assert len(texts) == len(set(texts)) == len(reviews)
    for rows in splits.values():
        assert abs(sum(label == "pos" for _, label in rows) / len(rows) - 0.48) < 0.01
    assert splits == labelled_corpora.random_splits(reviews)


def test_sms_and_questions(materials):
    folder = materials / "sms_and_questions"
    spam = labelled_corpora.read_sms_spam(folder / "sms-spam.csv")
    assert {label for _, label in spam} == {"ham", "spam"} and len(spam) == 5160
    assert max(len(text) for text, _ in spam) < 1000 and not any("\tham" in t for t, _ in spam)
    questions = labelled_corpora.read_questions(folder / "question_labels.txt")
    assert {label for _, label in questions} == {"ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM"}
    assert dict(questions)["What fowl grabs the spotlight after the Chinese Year of the Monkey ?"]


def test_texts_with_two_labels_are_dropped():
    pairs = [("a  b", "x"), ("a b", "x"), ("c", "x"), ("c", "y"), (" ", "x")]
    assert labelled_corpora.distinct(pairs) == [("a b", "x")]


def test_reviews_in_csv(tmp_path):
    path = tmp_path / "hotels.csv"
    path.write_text(
        '\ufefflabel,review\n1,"a ""good"" hotel,\nquiet"\n0,loud\n1,loud\n', encoding="utf-8"
    )
    assert labelled_corpora.read_reviews_csv(path) == [('a "good" hotel, quiet', "pos")]
    for content, words in (
        ("label,review\n2,x\n", "line 2 must have the label 0 or 1"),
        ("label,review\n1\n", "line 2 must have the label 0 or 1 and a review"),
        ("label,text\n1,x\n", "must have the columns label and review"),
        ("", "must have the columns label and review"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=words):
            labelled_corpora.read_reviews_csv(path)


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "x").write_text("text,label\nhello,1\n")
    with pytest.raises(DataError, match="line 2 must be number,0 or 1"):
        labelled_corpora.read_sms_spam(tmp_path / "x")
    with pytest.raises(DataError, match="line 1 must be KIND:detail"):
        labelled_corpora.read_questions(tmp_path / "x")
    with pytest.raises(DataError, match="neg.txt must be a data file"):
        labelled_corpora.read_chinese_reviews(tmp_path)
