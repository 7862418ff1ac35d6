"""The log of a run: what is damaged is named, and an incomplete last line is not."""

import math

import pytest

from bert_tf.errors import DataError
from bert_tf.training.callbacks import JsonLines, read_json_lines


@pytest.mark.parametrize(
    "line", [b"{", b"", b"7", b"{}", b'{"step": "2"}', b'{"step": 2, "a": "\xff"}', b"[" * 9999]
)
def test_a_damaged_line_is_named(line, tmp_path):
    path = tmp_path / "log.jsonl"
    JsonLines(path).write(1, {"loss": math.nan})
    whole = path.read_bytes()
    path.write_bytes(whole + line + b"\n" + whole)
    for read in (read_json_lines, lambda path: JsonLines(path, initial_step=5)):
        with pytest.raises(DataError, match=r"log.jsonl, line 2, must be .*Received"):
            read(path)
    assert path.read_bytes() == whole + line + b"\n" + whole


def test_an_incomplete_last_line_is_left_out(tmp_path):
    path = tmp_path / "log.jsonl"
    JsonLines(path).write(1, {"loss": 0.5})
    with open(path, "ab") as file:
        file.write(b'{"step": 2, "loss\xc3')
    assert [line["loss"] for line in read_json_lines(path)] == [0.5]
    JsonLines(path, initial_step=1).write(2, {"loss": 0.25})
    assert [line["loss"] for line in read_json_lines(path)] == [0.5, 0.25]


def test_a_log_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "absent.jsonl", tmp_path):
        with pytest.raises(DataError, match="must be a log of a run. Received: [IN]"):
            read_json_lines(path)
