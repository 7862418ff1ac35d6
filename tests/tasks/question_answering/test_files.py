"""The reader of SQuAD files, and what it refuses."""

import json

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.question_answering.files import read_squad


def squad(*questions, context="It is in Paris."):
    return {"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": questions}]}]}


def question(id="1", **fields):
    return {
        "id": id,
        "question": "Where?",
        "answers": [{"text": "Paris", "answer_start": 9}],
        **fields,
    }


def written(tmp_path, content):
    path = tmp_path / "squad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_official_sample(materials):
    examples = read_squad(materials / "format_fixtures" / "squad.json")
    assert len(examples) == 5
    first = examples[0]
    assert first.id == "5733be284776f41900661182"
    assert first.answers[0] == ("Saint Bernadette Soubirous", 515)
    for example in examples:
        for text, start in example.answers:
            assert example.context[start : start + len(text)] == text


def test_version_2_and_files_without_answers(tmp_path):
    impossible = question("2", answers=[], is_impossible=True, plausible_answers=[])
    unknown = question("3")
    del unknown["answers"]
    examples = read_squad(written(tmp_path, squad(question(), impossible, unknown)))
    assert [example.is_impossible for example in examples] == [False, True, False]
    assert [example.has_answers for example in examples] == [True, True, False]
    assert [example.training_answer() for example in examples] == [("Paris", 9), None, None]


@pytest.mark.parametrize(
    "content,words",
    [
        ("no json", "must be JSON"),
        ("[" * 100_000, "must be JSON"),
        ([], "JSON value in the SQuAD file .* must be an object. Received: \\[\\]"),
        ({"rows": []}, "`data` in .* must be a list .* Received: nothing"),
        ({"data": []}, "must have questions"),
        ({"data": ["text"]}, r"data\[0\]` in .* must be an object"),
        ({"data": [{}]}, r"data\[0\].paragraphs` in .* must be a list"),
        (
            squad(question(), context=None),
            r"data\[0\].paragraphs\[0\].context` in .* must be a string",
        ),
        (squad(question(question=3)), r"qas\[0\].question` in .* must be a string. Received: .*=3"),
        (squad(question(id=3)), r"qas\[0\].id` in .* must be a string"),
        (squad(question(answers="Paris")), r"qas\[0\].answers` in .* must be a list"),
        (
            squad(question(answers=[{"text": "Paris"}])),
            r"answers\[0\].answer_start` in .* must be an int",
        ),
        (squad(question(is_impossible="no")), "is_impossible` in .* must be true or false"),
        (squad(question(), question("2"), question()), "a different id.*1 ids more than once.*'1'"),
    ],
)
def test_what_is_not_squad_is_refused(tmp_path, content, words):
    with pytest.raises(DataError, match=words):
        read_squad(written(tmp_path, content))


def test_missing_file_and_other_encodings(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_squad(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes('{"data": "\u00e9"}'.encode("latin-1"))
    with pytest.raises(DataError, match="UTF-8"):
        read_squad(tmp_path / "latin.json")
