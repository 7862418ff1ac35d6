"""Run files of TREC, written and read, and the errors that name file and line."""

import numpy as np
import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.sentence_embedding.files import read_run, write_run


def test_what_is_written_is_read(tmp_path):
    third = np.float32(1 / 3)
    run = {"q2": {"d1": -0.5, "d2": third, "d3": third, "é": 1e-9}, "q1": {"d1": 1 / 3}}
    write_run(tmp_path / "out.run", run, name="minilm")
    assert read_run(tmp_path / "out.run") == run
    lines = (tmp_path / "out.run").read_text(encoding="utf-8").splitlines()
    ranked = [line.split()[:4] for line in lines[:4]]
    documents = ("d3", "d2", "é", "d1")
    assert ranked == [["q2", "Q0", id_, str(rank)] for rank, id_ in enumerate(documents, start=1)]
    assert lines[-1] == f"q1 Q0 d1 1 {1 / 3} minilm"


def test_only_scores_make_the_ranking(tmp_path):
    (tmp_path / "out.run").write_text("q1\tQ0 d1 7 2 x\n\nq1 anything d2 7 3e0 y \n")
    assert read_run(tmp_path / "out.run") == {"q1": {"d1": 2.0, "d2": 3.0}}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("q1 Q0 d1 1 0.5", "line 1 must have query, .* Received: 5 fields"),
        ("q1 Q0 d1 1 half x", "line 1 must have a number as its score. Received: 'half'"),
        ("q1 Q0 d1 1 nan x", "Received: 'nan'"),
        ("q1 Q0 d1 1 2 x\nq1 Q0 d1 2 1 x", "line 2 must have a document that no other"),
        ("\n", "must have results"),
    ],
)
def test_bad_files(tmp_path, lines, message):
    (tmp_path / "out.run").write_text(lines)
    with pytest.raises(DataError, match=message):
        read_run(tmp_path / "out.run")


@pytest.mark.parametrize("run", [{"q 1": {"d1": 1.0}}, {"q1": {"d\t1": 1.0}}, {"": {"d1": 1.0}}])
def test_ids_with_white_space_are_not_written(tmp_path, run):
    with pytest.raises(DataError, match="words without white space"):
        write_run(tmp_path / "out.run", run)
    assert not (tmp_path / "out.run").exists()
