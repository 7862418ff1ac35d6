"""Words that Beam counts are those that the local tool counts."""

import json

import pytest

pytest.importorskip("apache_beam", reason="needs apache-beam")

from apache_beam.options.pipeline_options import PipelineOptions

from bert_tf.beam.file_access import match_files
from bert_tf.beam.line_formats import LineFormat
from bert_tf.beam.vocabulary import count_corpus
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import DataError
from bert_tf.text.vocabulary_learning import count_words, read_lines

TEXT = LineFormat()
NORMALIZATION = (True, None, True)


def count(tmp_path, paths, line_format=TEXT, keep_going=False):
    files = match_files(list(map(str, paths)))
    options = PipelineOptions(["--runner=DirectRunner", "--allow_unsafe_triggers"])
    (tmp_path / "work").mkdir(exist_ok=True)
    workspace = Workspace.of(str(tmp_path / "work"), [str(line_format), keep_going])
    with workspace.locked():
        work = (options, keep_going, 0)
        options = (line_format, NORMALIZATION, *work)
        counts, letters = count_corpus(workspace, files, *options, block_bytes=40)
        return counts, list(letters)


def test_the_same_counts_in_every_format(tmp_path):
    lines = ["A naïve café.", "\ufeff漢字 word", "don't\0stop \u2028 now", "", "word " * 30] * 3
    (tmp_path / "a.txt").write_bytes("\r\n".join(lines).encode())
    (tmp_path / "b.txt").write_bytes(b"word\nlast word")
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    expected = count_words(read_lines(paths, progress=False), *NORMALIZATION, progress=False)
    assert count(tmp_path, paths) == (expected, [])
    records = [json.dumps({"body": "\n".join(lines)}), json.dumps({"body": "word\nlast word"})]
    (tmp_path / "c.json").write_text("\n".join(records))
    as_json = LineFormat("json", json_key="body")
    assert count(tmp_path, [tmp_path / "c.json"], as_json) == (expected, [])


def test_damaged_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nbad \xff\ngood")
    with pytest.raises(DataError, match="a.txt, line at byte 5 must be UTF-8"):
        count(tmp_path, [path])
    counts, (letter,) = count(tmp_path, [path], keep_going=True)
    assert counts == {"good": 2}
    assert (letter.source, letter.position, letter.element) == (str(path), 5, "bad \\xff\n")
