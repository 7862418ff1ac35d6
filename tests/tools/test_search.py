"""tools/build_index.py and tools/search.py on real film reviews with MiniLM."""

import json
import os
import sys

import numpy as np
import pytest

from bert_tf import BertSentenceEncoder
from bert_tf.errors import UserError
from bert_tf.inputs.tables.table_writer import open_table
from bert_tf.search import BM25Index, VectorIndex, fuse_rankings, top_k
from bert_tf.tasks.sentence_embedding import EncodingPool
from research.corpora.film_reviews import read_film_reviews
from tests.tools.running import run

QUERIES = ["a waste of time", "the funniest film of the year"]


@pytest.fixture(scope="module")
def reviews(materials):
    archive = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    return [text for text, *_ in read_film_reviews(archive)[:60]]


@pytest.fixture(scope="module")
def start(tmp_path_factory, minilm, reviews):
    root = tmp_path_factory.mktemp("search")
    with open_table(root / "reviews.csv") as table:
        table.write([{"key": f"r{n}", "review": text} for n, text in enumerate(reviews)])
    (root / "reviews.txt").write_text("\n\n".join(reviews) + "\n \n")
    (root / "queries.txt").write_text("\n".join(QUERIES))
    flags = ("--text_column=review", "--id_column=key", f"--output_dir={root}/index")
    result = build(root, minilm, "reviews.csv", *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "60 vectors of size 384",
        f"index: {root}/index",
        f"Search with: bert-tf search --index_dir={root}/index --model_dir={minilm}",
    ]
    return root


@pytest.fixture(scope="module")
def vectors(minilm, reviews):
    encoder = BertSentenceEncoder.from_pretrained(minilm)
    return np.split(encoder.encode(QUERIES + reviews), [len(QUERIES)])


@pytest.fixture(scope="module")
def expected(vectors):
    return top_k(*vectors, 4)


def build(root, minilm, file, *flags, **options):
    files = f"--model_dir={minilm}", f"--input_file={root}/{file}"
    return run("build_index", *files, *flags, **options)


def search(root, minilm, *flags, index="index"):
    return run("search", f"--index_dir={root}/{index}", f"--model_dir={minilm}", *flags)


@pytest.mark.parametrize(
    "flags,words",
    [
        (("--input_file=absent.txt",), "absent.txt must be a data file"),
        (("--input_file=ROOT/reviews.txt", "--text_column=review"), "with --text_column"),
        (("--text_column=title",), "line 2 must have a text in the column 'title'"),
        (("--text_column=review", "--id_column=isbn"), "a number in the column 'isbn'"),
        (("--input_file=/dev/null",), "must be a file with texts"),
        (("--output_dir=ROOT",), "must be a new directory or an index"),
        (("--devices=0,1",), "one GPU for each of --num_processes"),
    ],
)
def test_wrong_flags_of_build_index(start, minilm, flags, words):
    flags = [flag.replace("ROOT", str(start)) for flag in flags]
    result = build(start, minilm, "reviews.csv", f"--output_dir={start}/none", *flags)
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert not (start / "none").exists()


@pytest.mark.parametrize(
    "flags,words",
    [
        ((), "--query or --query_file must be set"),
        (("--query=a", "--query_file=b"), "Only one of --query and --query_file"),
        (("--query_file=absent.txt",), "absent.txt must be a data file"),
        (("--query=a", "--index_dir=absent"), "absent/index.json must be a JSON file"),
        (("--query=a", "--output_file=ROOT"), "must be a file"),
        (("--query=a", "--top_k=0"), "top_k"),
    ],
)
def test_wrong_flags_of_search(start, minilm, flags, words):
    flags = [flag.replace("ROOT", str(start)) for flag in flags]
    result = search(start, minilm, *flags)
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr


def test_words_count_too(start, minilm, reviews, vectors):
    pytest.importorskip("bm25s", reason="needs bm25s")
    flags = [f"--query_file={start}/queries.txt", "--top_k=3", "--json"]
    result = search(start, minilm, "--bm25", *flags)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line)["results"] for line in result.stdout.splitlines()]
    rankings = [top_k(*vectors, 60), BM25Index(reviews).search(QUERIES, 60)]
    scores, rows = fuse_rankings(rankings, 3)
    assert [[item["row"] for item in items] for items in found] == rows.tolist()
    assert [[item["text"] for item in items] for items in found] == [
        [reviews[row] for row in best] for best in rows
    ]
    np.testing.assert_allclose(
        [[item["score"] for item in items] for items in found], scores, atol=1e-6
    )
    result = search(start, minilm, "--bm25", *flags, "--fusion_weights=1")
    assert result.returncode == 1 and "--fusion_weights must be 2 numbers" in result.stderr


@pytest.mark.full
def test_several_processes_build_the_same_index(start, minilm):
    flags = ("--num_processes=2", f"--output_dir={start}/of_two")
    result = build(start, minilm, "reviews.txt", *flags)
    assert result.returncode == 0, result.stderr
    index, other = (VectorIndex(start / name) for name in ("index", "of_two"))
    np.testing.assert_allclose(index.vectors, other.vectors, atol=1e-5)


def without_a_pool():
    def refuse(self, directory, num_processes, devices):
        raise UserError(f"{num_processes} process with the devices {devices}")

    EncodingPool.__init__ = refuse


def test_one_process_with_a_device(start, minilm):
    """It has a process of its own, because this one may use another GPU."""
    flags = ("--devices=1", f"--output_dir={start}/of_device")
    result = build(start, minilm, "reviews.txt", *flags, prepare=without_a_pool)
    assert result.returncode == 1 and "1 process with the devices ['1']" in result.stderr


def test_finds_what_a_search_in_memory_finds(start, minilm, reviews, expected):
    output = start / "found.jsonl"
    flags = (f"--query_file={start}/queries.txt", "--top_k=4", f"--output_file={output}")
    result = search(start, minilm, *flags)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"results: {output}\n"
    found = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [line["query"] for line in found] == QUERIES
    for line, scores, rows in zip(found, *expected):
        assert [result["row"] for result in line["results"]] == rows.tolist()
        assert [result["id"] for result in line["results"]] == [f"r{row}" for row in rows]
        assert [result["text"] for result in line["results"]] == [reviews[row] for row in rows]
        np.testing.assert_allclose([result["score"] for result in line["results"]], scores, 1e-4)


def test_prompts(start, minilm, reviews):
    result = build(
        start, minilm, "queries.txt", "--prompt=passage: ", f"--output_dir={start}/prompted"
    )
    assert result.returncode == 0, result.stderr
    vectors = BertSentenceEncoder.from_pretrained(minilm).encode(
        [*("passage: " + query for query in QUERIES), "query: a long film"]
    )
    np.testing.assert_allclose(VectorIndex(start / "prompted").vectors, vectors[:2], atol=1e-5)
    flags = ("--query=a long film", "--prompt=query: ", "--json")
    result = search(start, minilm, *flags, index="prompted")
    found = json.loads(result.stdout)["results"]
    expected, _ = top_k(vectors[2:], vectors[:2], 2)
    np.testing.assert_allclose([each["score"] for each in found], expected[0], atol=1e-4)


def test_a_corpus_of_lines(start, minilm, reviews):
    output = f"--output_dir={start}/bits"
    result = build(start, minilm, "reviews.txt", "--precision=binary", output)
    assert result.returncode == 0, result.stderr
    index = VectorIndex(start / "bits")
    assert index.vectors.shape == (60, 48) and index.items([7]) == [{"text": reviews[7]}]


def test_results_as_text(start, minilm, reviews, vectors):
    index = VectorIndex.build(start / "int8", vectors[1], reviews, precision="int8")
    _, expected = index.search(vectors[0], 4)
    flags = [f"--query={query}" for query in QUERIES]
    result = search(start, minilm, *flags, "--top_k=4", index="int8")
    assert result.returncode == 0, result.stderr
    blocks = result.stdout.removesuffix("\n\n").split("\n\n")
    assert [block.splitlines()[0] for block in blocks] == QUERIES
    for block, rows in zip(blocks, expected.tolist()):
        lines = [line.split("\t") for line in block.splitlines()[1:]]
        assert [(int(row), text) for _, row, text in lines] == [(row, reviews[row]) for row in rows]


def test_control_characters_are_escaped(start, minilm, vectors):
    texts, ids = ["\x1b[31mred\ttab\nline\x07", None, "\x9b31m"], ["a\tb\n", None, 7]
    VectorIndex.build(start / "control", vectors[1][:3], texts, ids)
    result = search(start, minilm, "--query=film", "--top_k=3", index="control")
    assert result.returncode == 0, result.stderr
    lines = [line.split("\t")[1:] for line in result.stdout.splitlines()[1:4]]
    expected = [["1", ""], ["7", r"\x9b31m"], [r"a\tb\n", r"\x1b[31mred tab line\x07"]]
    assert sorted(lines) == expected


def type_queries():
    """Makes standard input a terminal on which a query was typed, and then Ctrl-D."""
    typed, terminal = os.openpty()
    os.write(typed, b"a waste of time\n\n\x04")
    sys.stdin = os.fdopen(terminal)


def test_queries_that_are_typed(start, minilm, reviews, expected):
    flags = (f"--index_dir={start}/index", f"--model_dir={minilm}", "--top_k=1")
    result = run("search", *flags, prepare=type_queries)
    assert result.returncode == 0, result.stderr
    best = expected[1][0, 0]
    assert f"\tr{best}\t{reviews[best]}\n" in result.stdout
