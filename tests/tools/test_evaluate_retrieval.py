"""tools/evaluate_retrieval.py: MiniLM finds three topics; tiny models show what flags do."""

import json

import pytest

from bert_tf import BertBackbone, BertSentenceEncoder, BertSparseEncoder, BertTokenizer
from bert_tf.search import BM25Index, fuse_rankings, sparse_top_k, top_k
from bert_tf.tasks.sentence_embedding.files import read_run
from bert_tf.tools.common import corpus_search
from tests.conftest import MATERIALS
from tests.example_files import CORPUS, write_retrieval_data
from tests.example_files import QRELS as FILM_QRELS
from tests.search.test_exact_search import TOPICS
from tests.tools.running import run

MINILM = MATERIALS / "minilm"
DOCUMENTS = [
    (f"{topic}{number}", text)
    for topic, texts in zip("abc", TOPICS)
    for number, text in enumerate(texts)
]
QUERIES = [("a", "dogs"), ("b", "economy and finance"), ("c0", "cooking"), ("ungraded", "sports")]
QRELS = "query-id\tcorpus-id\tscore\n" + "".join(
    f"{query}\t{query[0]}{number}\t{grade}\n"
    for query in ("a", "b", "c0")
    for number, grade in enumerate([2, 1, 1, 1])
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("retrieval")
    write_retrieval_data(directory / "topics", DOCUMENTS, QUERIES, QRELS)
    wrong = "query-id\tcorpus-id\tscore\na\tb0\t1\nb\tnowhere\t1\n"
    write_retrieval_data(directory / "wrong", DOCUMENTS, QUERIES, wrong)
    return directory


@pytest.fixture(scope="module")
def evaluated(data):
    result = run(
        "evaluate_retrieval",
        f"--model_dir={MINILM}",
        f"--data_dir={data}",
        "--k=4,1",
        f"--run_output={data}/runs",
        f"--output_dir={data}/out",
    )
    assert result.returncode == 0, result.stderr
    return result


def results_in(directory):
    return json.loads((directory / "retrieval_results.json").read_text())


def test_data_sets_and_their_mean(data, evaluated):
    lines = evaluated.stdout.splitlines()
    assert lines[0] == "topics: 3 queries, 12 documents"
    assert lines[1].split() == ["@1", "@4", "all"]
    assert lines[6].split() == ["precision", "1.0000", "1.0000"]  # each query finds its topic
    length = lines.index("wrong: 2 queries, 12 documents")
    assert lines[2 * length] == "mean of 2 data sets"
    assert len(lines) == 3 * length + 1
    assert lines[-1] == f"results: {data}/out/retrieval_results.json"
    assert "1 of 2 relevant documents are not in" in evaluated.stderr
    results = results_in(data / "out")
    topics, wrong = (results["data_sets"][name]["scores"] for name in ("topics", "wrong"))
    assert topics["recall@4"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert wrong["recall@4"]["value"] == 0.0
    assert results["mean"]["recall@4"] == 0.5
    assert 0 < topics["ndcg@4"]["low"] <= topics["ndcg@4"]["value"] <= 1.0


def test_a_run_is_scored_the_same(data, evaluated):
    path = data / "runs" / "topics.run"
    assert {query: len(scores) for query, scores in read_run(path).items()} == {
        "a": 4,
        "b": 4,
        "c0": 4,
    }
    flags = [f"--qrels_file={data}/topics/qrels/test.tsv", f"--output_dir={data}/again", "--k=1,4"]
    result = run("evaluate_retrieval", f"--run_file={path}", *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("topics: 3 queries\n")
    expected = results_in(data / "out")["data_sets"]["topics"]
    assert results_in(data / "again")["data_sets"] == {"topics": expected}

    lines = path.read_text().splitlines(keepends=True)
    (data / "part.run").write_text("".join(line for line in lines if line.startswith("a ")))
    for switch, summary, recall in (
        ("--nocount_missing", "1 queries (2 more have no results and do not count)", 1.0),
        ("--count_missing", "1 queries (2 more have no results and count with zeros)", 1 / 3),
    ):
        result = run("evaluate_retrieval", f"--run_file={data}/part.run", *flags, switch)
        assert summary in result.stdout, result.stderr
        assert results_in(data / "again")["mean"]["recall@4"] == pytest.approx(recall)


@pytest.fixture(scope="module")
def tiny_encoder(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    return BertSentenceEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)


def test_prefixes_and_identical_ids(tiny_encoder, tmp_path):
    tiny_encoder.save_pretrained(tmp_path / "model")
    documents, queries = [*CORPUS, ("q1", "good film")], [("q1", "good film"), ("q2", "bad film")]
    write_retrieval_data(tmp_path / "set", documents, queries, FILM_QRELS)
    result = run(
        "evaluate_retrieval",
        f"--model_dir={tmp_path}/model",
        f"--data_dir={tmp_path}/set",
        "--k=3",
        "--query_prefix=the ",
        "--document_prefix=bad good ",
        "--ignore_identical_ids",
        "--similarity=dot",
        f"--run_output={tmp_path}",
        f"--output_dir={tmp_path}",
    )
    assert result.returncode == 0, result.stderr
    vectors = tiny_encoder.encode([f"bad good {text}" for _, text in documents])
    found = read_run(tmp_path / "set.run")
    for id_, text in queries:
        dots = vectors @ tiny_encoder.encode(f"the {text}")
        expected = {document: dot for (document, _), dot in zip(documents, dots) if document != id_}
        for document in sorted(expected, key=expected.get)[:-3]:
            del expected[document]
        assert found[id_] == pytest.approx(expected, rel=1e-4)


def test_vectors_words_and_sparse_vectors_become_one_search(
    tiny_encoder, tiny_config, tiny_vocabulary, tmp_path
):
    pytest.importorskip("bm25s", reason="needs bm25s")
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    sparse = BertSparseEncoder(BertBackbone(tiny_config), tokenizer=tokenizer)
    tiny_encoder.save_pretrained(tmp_path / "dense")
    sparse.save_pretrained(tmp_path / "sparse")
    queries = [("q1", "good film"), ("q2", "bad film")]
    write_retrieval_data(tmp_path / "set", CORPUS, queries, FILM_QRELS)
    flags = [f"--data_dir={tmp_path}/set", f"--output_dir={tmp_path}", "--k=3"]
    models = f"--model_dir={tmp_path}/dense,{tmp_path}/sparse", "--bm25"
    fusion = "--fusion=weighted", "--fusion_weights=1,0.5,2"
    result = run("evaluate_retrieval", *models, *fusion, *flags, f"--run_output={tmp_path}/all")
    assert result.returncode == 0, result.stderr
    found = read_run(tmp_path / "all" / "set.run")
    ids, texts = zip(*CORPUS)
    asked = [text for _, text in queries]
    rankings = [
        top_k(tiny_encoder.encode(asked), tiny_encoder.encode(list(texts)), len(ids)),
        sparse_top_k(sparse.encode(asked), sparse.encode(list(texts)), len(ids)),
        BM25Index(texts).search(asked, len(ids)),
    ]
    scores, rows = fuse_rankings(rankings, 3, "weighted", [1, 0.5, 2])
    for (query, _), values, numbers in zip(queries, scores, rows):
        expected = {ids[row]: value for row, value in zip(numbers, values)}
        assert found[query] == pytest.approx(expected, rel=1e-4)

    # Files of results are fused, too.
    runs = []
    for number, model in enumerate((f"--model_dir={tmp_path}/dense", "--bm25")):
        output = f"--run_output={tmp_path}/{number}"
        assert run("evaluate_retrieval", model, *flags, output).returncode == 0
        runs.append(f"{tmp_path}/{number}/set.run")
    files = f"--run_file={','.join(runs)}", f"--qrels_file={tmp_path}/set/qrels/test.tsv"
    result = run("evaluate_retrieval", *files, f"--output_dir={tmp_path}")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("set+set: 2 queries\n")


def test_block_by_block(tiny_encoder, monkeypatch):
    documents = [(f"d{number}", f"good film {number}") for number in range(10)]
    queries = {"q1": "good film", "q2": "7"}
    whole = corpus_search.search_corpus(tiny_encoder, queries, documents, 5, "cosine")
    monkeypatch.setattr(corpus_search, "BLOCK", 3)
    parts = corpus_search.search_corpus(tiny_encoder, queries, documents, 5, "cosine")
    for query, scores in whole.items():
        assert len(scores) == 5
        assert list(parts[query].values()) == pytest.approx(list(scores.values()), abs=1e-5)


def test_flags_are_checked_before_any_work(tmp_path):
    model = ("--model_dir=x", "--data_dir=y")
    for flags, message in (
        ((), "Exactly one of --model_dir and --run_file must be set"),
        ((*model, "--run_file=z"), "Exactly one of --model_dir and --run_file must be set"),
        (("--model_dir=x",), "--data_dir must be set with --model_dir"),
        (("--run_file=x",), "--qrels_file must be set with --run_file"),
        ((*model, "--qrels_file=z"), "--qrels_file must be used with --run_file"),
        (
            ("--run_file=x", "--qrels_file=y", "--query_prefix=z"),
            "--query_prefix must be used with --model_dir",
        ),
        ((*model, "--k=1,0"), "--k must be positive whole numbers"),
        ((*model, "--fusion_weights=1,2"), "--fusion_weights must be 1 numbers"),
        ((*model, "--bm25", "--fusion_weights=1,x"), "--fusion_weights must be 2 numbers"),
        (("--run_file=x", "--qrels_file=y", "--bm25"), "--bm25 must be used with --model_dir"),
        ((*model, "--k="), "--k must have at least one number"),
        (model, "must have a corpus.jsonl, or folders with one"),
    ):
        result = run("evaluate_retrieval", f"--output_dir={tmp_path}/out", *flags)
        assert result.returncode == 1 and message in result.stderr, result.stderr
        assert "Traceback" not in result.stderr


def test_wrong_files_are_found_before_the_model_is_opened(data, tmp_path):
    qrels = QRELS + "unknown\ta0\t1\n"
    write_retrieval_data(tmp_path / "set", DOCUMENTS, QUERIES, qrels)
    flags = ["--model_dir=no_model", f"--data_dir={tmp_path}/set", f"--output_dir={tmp_path}/out"]
    result = run("evaluate_retrieval", *flags)
    assert result.returncode == 1
    assert "must have every query" in result.stderr and "['unknown']" in result.stderr
    (tmp_path / "set" / "qrels" / "test.tsv").write_text(QRELS)
    write_retrieval_data(tmp_path / "wrong", [*DOCUMENTS, ("d 1", "text")], QUERIES, QRELS)
    flags[1] = f"--data_dir={tmp_path}"
    result = run("evaluate_retrieval", *flags, f"--run_output={tmp_path}/runs")
    assert result.returncode == 1 and "white space. Received: 'd 1'" in result.stderr
    (tmp_path / "wrong" / "corpus.jsonl").write_text("{}")
    result = run("evaluate_retrieval", *flags)
    assert result.returncode == 1 and "wrong/corpus.jsonl, line 1" in result.stderr


def test_scores_are_written_after_each_data_set(tiny_encoder, tmp_path):
    tiny_encoder.save_pretrained(tmp_path / "model")
    queries = [("q1", "good film"), ("q2", "bad film")]
    for name in ("one", "two"):
        write_retrieval_data(tmp_path / "data" / name, CORPUS, queries, FILM_QRELS)
    (tmp_path / "out" / "one.run").mkdir(parents=True)  # this file cannot be written
    result = run(
        "evaluate_retrieval",
        f"--model_dir={tmp_path}/model",
        f"--data_dir={tmp_path}/data",
        f"--run_output={tmp_path}/out",
        f"--output_dir={tmp_path}/out",
    )
    assert result.returncode != 0 and "one.run" in result.stderr
    assert list(results_in(tmp_path / "out")["data_sets"]) == ["one"]
