"""Whole tables in place of a column of texts."""

import pytest

import bert_tf
from bert_tf.errors import UserError
from bert_tf.inputs.columns import as_columns, holds_text
from tests.conformance.task import CONFIG, tokenizer

ROWS = {"text": ["good", "bad"], "title": ["a", "b"], "stars": [1, 0]}


def tables(rows):
    """The same table in every library."""
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    polars = pytest.importorskip("polars", reason="needs polars")
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
    yield pandas.DataFrame(rows, index=[5, 5])
    yield polars.DataFrame(rows)
    yield pyarrow.table(rows)


def test_tables_with_other_columns():
    for table in tables(ROWS):
        assert holds_text(table)
        with pytest.raises(
            UserError,
            match=r"not a whole table.*\['text', 'title', 'stars'\]. Pass `frame\['text'\]`",
        ):
            as_columns(table)
    for table in tables({"text": ROWS["text"], "title": ROWS["title"]}):  # pairs
        assert [column.tolist() for column in as_columns(table)] == [
            [b"good", b"bad"],
            [b"a", b"b"],
        ]
    for table in tables({"stars": [1, 0]}):
        assert not holds_text(table)


def test_training_on_tables():
    options = {"tokenizer": tokenizer(), "labels": ["a", "b"]}
    model = bert_tf.BertTextClassifier(bert_tf.BertBackbone(CONFIG), **options)
    model.compile("sgd", run_eagerly=True)
    texts = {"text": ROWS["text"], "title": ROWS["title"]}
    for table in tables({**texts, "more": ["c", "d"]}):
        with pytest.raises(UserError, match=r"1 or 2 texts.*\['text', 'title', 'more'\]; pass one"):
            model.fit(table, [0, 1])
    for table in tables(ROWS):
        for call in (model.fit, model.evaluate):
            with pytest.raises(UserError, match="`x` must be the texts, not a whole table"):
                call(table, [0, 1])
    frame = next(tables(texts))
    with pytest.raises(UserError, match="`y` is its column 'title'.*Pass the column of the texts"):
        model.fit(frame, frame["title"])
    with pytest.raises(UserError, match="`y` is its column 'title'"):
        model.fit(frame, [0, 1], validation_data=(frame, frame["title"]))
    model.fit(frame, [0, 1], verbose=0)
    model.fit(frame["text"], frame["title"], verbose=0)
