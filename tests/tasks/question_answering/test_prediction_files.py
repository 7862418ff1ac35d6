"""Files of predicted answers: read as the original writes them, refused otherwise."""

import json

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.question_answering import SquadExample, read_answers

EXAMPLES = [SquadExample("a", "q", "c"), SquadExample("b", "q", "c")]


def test_texts_by_id(tmp_path):
    path = tmp_path / "predictions.json"
    path.write_text(json.dumps({"b": "", "a": "Zürich"}))
    assert read_answers(path, EXAMPLES) == {"a": "Zürich", "b": ""}
    path.write_text("{}")
    assert read_answers(path, EXAMPLES) == {}


@pytest.mark.parametrize(
    "content,words",
    [
        ('{"a": "x"', "must be a valid JSON"),
        (b"\xff", "UTF-8"),
        ('["a"]', "must be an object"),
        ('{"a": {"text": "x"}}', "must be a string"),
        ('{"a": 1}', "must be a string"),
        ('{"a": "x", "b": "", "a": "y"}', "'a' occurs more than once"),
        ('{"a": "x", "z": "y"}', r"1 unknown ids, \['z'\]"),
    ],
)
def test_what_is_no_predictions_file(tmp_path, content, words):
    path = tmp_path / "predictions.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=words):
        read_answers(path, EXAMPLES)
    with pytest.raises(DataError, match="No such file"):
        read_answers(tmp_path / "absent.json", EXAMPLES)
