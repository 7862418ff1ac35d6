"""Data sets for retrieval: from a small manual made here, and from real questions and reviews."""

import json

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.sentence_embedding.files import read_qrels, read_run
from research.corpora import retrieval
from tests.tools.running import run

LONG = "This paragraph has enough words to be a document of a data set, and a number: {}."
MANUAL = """<html xmlns="http://www.w3.org/1999/xhtml"><body>
<div class="navheader"><p>{0}</p></div><p id="title">{0}</p>
<h1 class="title"><a id="a"/>Chapter 3. The system</h1><p>Too short.</p>
<h2 class="title">3.1. How it
  starts</h2><p>{1}</p><ul><li><div class="para">{2}</div></li></ul>
<h3 class="title">3.1.1. Overview</h3><p>{3}</p>
<h3 class="title">3.1.2. Nothing</h3></body></html>"""


def test_headings_and_paragraphs_of_a_manual(tmp_path):
    (tmp_path / "ch03.html").write_text(MANUAL.format(*map(LONG.format, range(4))))
    found = dict(retrieval.read_headings(tmp_path / "ch03.html"))
    assert found == {
        "The system": [],
        "How it starts": [LONG.format(1), LONG.format(2)],
        "Overview": [LONG.format(3)],
        "Nothing": [],
    }
    (tmp_path / "ch03.html").write_text("<html>")
    with pytest.raises(DataError, match="in XHTML"):
        list(retrieval.read_headings(tmp_path / "ch03.html"))
    with pytest.raises(DataError, match="fetch_materials"):
        retrieval.manuals(tmp_path)


def test_splits_of_manuals_share_no_section(tmp_path):
    directory = tmp_path / "debian_reference_en"
    directory.mkdir()
    for number in range(10):
        text = MANUAL.format(*(LONG.format(f"{number}.{place}") for place in range(4)))
        (directory / f"{number}.html").write_text(text.replace("How it", f"How part {number}"))
    data = retrieval.manuals(tmp_path)
    assert len(data.documents) == 30
    assert [len(data.relevant[split]) for split in ("train", "dev", "test")] == [6, 1, 3]
    assert len(data.pairs) == 12  # headings of one word, and those that recur, ask nothing
    trained = {document for _, document in data.pairs}
    for split in ("dev", "test"):
        for query, ids in data.relevant[split].items():
            assert data.queries[query].startswith("How part")
            assert len(ids) == 2 and not trained & {data.documents[id_] for id_ in ids}


@pytest.mark.parametrize("name", ["questions", "film_reviews"])
def test_real_data_sets(materials, tmp_path, name):
    flags = (
        f"--data_set={name}",
        f"--materials_dir={materials}",
        f"--output_dir={tmp_path}/{name}",
    )
    result = run("research.prepare_retrieval_data", *flags)
    assert result.returncode == 0, result.stderr
    texts = {}
    for file in ("corpus", "queries"):
        lines = (tmp_path / name / f"{file}.jsonl").read_text("utf-8").splitlines()
        texts[file] = {row["_id"]: row["text"] for row in map(json.loads, lines)}
    lines = (tmp_path / name / "train.jsonl").read_text("utf-8").splitlines()
    trained = {text for line in lines for text in json.loads(line).values()}
    assert len(texts["corpus"]) > 2000 and len(lines) > 4000
    for split in ("dev", "test"):
        grades = read_qrels(tmp_path / name / "qrels" / f"{split}.tsv")
        assert len(grades) > 200
        assert not trained & {texts["queries"][query] for query in grades}
        assert all(texts["corpus"].keys() >= found.keys() for found in grades.values())


def test_bm25_finds_the_questions(materials, tmp_path):
    pytest.importorskip("bm25s", reason="needs bm25s")
    flags = (
        "--data_set=questions",
        f"--materials_dir={materials}",
        f"--output_dir={tmp_path}/data",
    )
    assert run("research.prepare_retrieval_data", *flags).returncode == 0
    flags = (f"--data_dir={tmp_path}/data", f"--output_dir={tmp_path}", f"--run_output={tmp_path}")
    result = run("evaluate_retrieval", "--bm25", "--k=10", *flags)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert result.stdout.startswith("data: 538 queries, 4,307 documents\n")
    assert max(map(len, read_run(tmp_path / "data.run").values())) == 10
    results = json.loads((tmp_path / "retrieval_results.json").read_text())
    assert 0.42 < results["mean"]["ndcg@10"] < 0.48
