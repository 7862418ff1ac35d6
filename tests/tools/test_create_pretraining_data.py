"""create_pretraining_data as a user runs it, and its parts: chunks, runs, bad input."""

import collections
import multiprocessing
import os
import random
import resource
import signal
import threading
import time

import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.tasks.pretraining.create_data import (
    create_pretraining_data,
    merge_runs,
    write_sorted_run,
)
from bert_tf.tasks.pretraining.document_chunks import read_documents, scan_documents
from bert_tf.tasks.pretraining.examples import ExampleOptions
from bert_tf.tasks.pretraining.records import feature_spec
from tests.tools.running import run, start

WORDS = [f"word{n}" for n in range(50)]
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    *WORDS,
    "##s",
    *(f"doc{n}" for n in range(300)),
]
OPTIONS = ExampleOptions(max_seq_length=32, max_predictions_per_seq=5)


def corpus_text(number, seed=0, sentences=12):
    """Documents whose every sentence begins with the document's name."""
    rng = random.Random(seed)
    return "\n".join(
        "".join(
            f"doc{n} " + " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 8))) + "\n"
            for _ in range(rng.randint(2, sentences))
        )
        for n in range(number)
    )


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCABULARY)


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "in.txt").write_text(corpus_text(40))
    return str(tmp_path / "in.txt")


@pytest.fixture
def vocab_file(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    return tmp_path / "vocab.txt"


def examples_of(*paths):
    spec = feature_spec(OPTIONS.max_seq_length, OPTIONS.max_predictions_per_seq)
    return [
        {k: v.numpy().tolist() for k, v in tf.io.parse_single_example(record, spec).items()}
        for path in paths
        for record in tf.data.TFRecordDataset(str(path))
    ]


def documents_of(example):
    """The names of the documents in the two segments, masks undone."""
    ids = list(example["input_ids"])
    for position, label in zip(example["masked_lm_positions"], example["masked_lm_ids"]):
        ids[position] = label if label else ids[position]
    first, second = set(), set()
    for token, segment, real in zip(ids, example["segment_ids"], example["input_mask"]):
        if real and VOCABULARY[token].startswith("doc"):
            (second if segment else first).add(VOCABULARY[token])
    return first, second


class TestTheTool:
    def test_from_text_to_files(self, tmp_path, corpus, vocab_file):
        (tmp_path / "in2.txt").write_text("word1 word2\nword3\n")
        outputs = [tmp_path / "out" / f"{n}.tfrecord" for n in range(3)]
        result = run(
            "create_pretraining_data",
            f"--input_file={tmp_path}/in*.txt",
            f"--output_file={','.join(map(str, outputs))}",
            f"--vocab_file={vocab_file}",
            "--max_seq_length=32",
            "--max_predictions_per_seq=5",
            "--dupe_factor=4",
            "--num_processes=2",
            "-v=1",  # progress bars without a terminal
        )
        assert result.returncode == 0, result.stderr
        made = [examples_of(path) for path in outputs]
        sizes = [len(examples) for examples in made]
        assert max(sizes) - min(sizes) <= 1
        assert "documents          41 in 1 chunks" in result.stdout
        assert f"examples           {sum(sizes)}" in result.stdout
        assert "masked share       0.1" in result.stdout
        assert "IsNext share       0." in result.stdout
        assert "documents/s" in result.stderr and "100%" in result.stderr
        random_next = collections.Counter()
        for example in sum(made, []):
            first, second = documents_of(example)
            assert len(first) <= 1
            if first and second and not example["next_sentence_labels"][0]:
                assert first == second
            elif first and second:
                assert first.isdisjoint(second)
            random_next[example["next_sentence_labels"][0]] += 1
        assert random_next[0] and random_next[1]
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
            "0.tfrecord",
            "1.tfrecord",
            "2.tfrecord",
        ]

    @pytest.mark.parametrize(
        "flags,words",
        [
            ({"input_file": "absent.txt"}, "must be text files. Received: absent.txt"),
            ({"input_file": "absent*"}, "must match at least one file. Received: 'absent*'"),
            ({"output_file": "IN/in.txt"}, "must not be an input file"),
            ({"output_file": "IN/a,IN/a"}, "must name every file once"),
            ({"output_file": "/proc/none/a"}, "/proc/none must be a directory"),
            ({"vocab_file": "IN/nomask.txt"}, "without '[MASK]' (mask_token)"),
            (
                {"input_file": "IN/mixed.txt"},
                "mixed.txt, line 2 must be UTF-8. Received: byte 0xe9",
            ),
        ],
    )
    def test_bad_input_is_refused_before_work(self, tmp_path, corpus, vocab_file, flags, words):
        (tmp_path / "nomask.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n")
        (tmp_path / "mixed.txt").write_bytes("caf\u00e9\n".encode() + b"caf\xe9\n")
        flags = {
            "input_file": corpus,
            "output_file": "IN/out.tfrecord",
            "vocab_file": vocab_file,
            **flags,
        }
        flags = [f"--{k}={str(v).replace('IN', str(tmp_path))}" for k, v in flags.items()]
        result = run("create_pretraining_data", *flags)
        assert result.returncode == 1
        assert words in result.stderr and "Traceback" not in result.stderr
        assert "making examples" not in result.stderr
        assert not (tmp_path / "out.tfrecord").exists()

    def test_a_file_with_one_document_is_reported(self, tmp_path, vocab_file):
        (tmp_path / "one.txt").write_text("word1 word2 word3 word4\n")
        output = tmp_path / "out.tfrecord"
        result = run(
            "create_pretraining_data",
            f"--input_file={tmp_path}/one.txt",
            f"--output_file={output}",
            f"--vocab_file={vocab_file}",
            "--max_seq_length=32",
            "--max_predictions_per_seq=5",
            "--dupe_factor=3",
            "--num_processes=1",
        )
        assert result.returncode == 0, result.stderr
        assert "have only one document" in result.stderr
        examples = examples_of(output)
        assert [example["next_sentence_labels"] for example in examples] == [[0]] * 3

    @pytest.mark.parametrize(
        "number, status, last_line",
        [
            (signal.SIGTERM, 1, "ended by SIGTERM; nothing was written"),
            (signal.SIGINT, 130, "interrupted"),  # as Ctrl-C in a terminal: to the workers too
        ],
    )
    def test_ended_from_outside_leaves_nothing(
        self, tmp_path, vocab_file, number, status, last_line
    ):
        (tmp_path / "in.txt").write_text(corpus_text(300))
        output = tmp_path / "out" / "a.tfrecord"
        process = start(
            "create_pretraining_data",
            f"--output_file={output}",
            f"--input_file={tmp_path}/in.txt",
            f"--vocab_file={vocab_file}",
            "--dupe_factor=100000",
            "--num_processes=2",
            output=tmp_path / "stdout",
            errors=tmp_path / "stderr",
        )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list(tmp_path.glob("out/.bert_tf-*/new/*.run")):
            time.sleep(0.02)  # until the workers are at work
        assert list(tmp_path.glob("out/.bert_tf-*/new/*.run"))
        if number == signal.SIGINT:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
        returncode = process.wait()
        errors = (tmp_path / "stderr").read_text()
        assert returncode == status and "Traceback" not in errors
        assert errors.splitlines()[-1] == last_line
        assert list((tmp_path / "out").iterdir()) == []


class TestTheSameBytes:
    def test_whatever_the_number_of_processes(self, tmp_path, tokenizer):
        (tmp_path / "in.txt").write_text(corpus_text(300))
        chunked = scan_documents([tmp_path / "in.txt"], chunk_bytes=8000, progress=False)
        assert len(chunked.chunks) > 5
        contents = []
        for processes in (1, 2, 3):
            outputs = [tmp_path / f"{processes}-{n}" for n in range(2)]
            summary = create_pretraining_data(
                chunked,
                outputs,
                tokenizer,
                OPTIONS,
                dupe_factor=3,
                num_processes=processes,
                progress=False,
            )
            contents.append([path.read_bytes() for path in outputs] + [summary])
        assert contents[0] == contents[1] == contents[2]
        assert summary.documents == 900
        number = len(examples_of(*outputs))
        assert sum(summary.lengths) == summary.examples == number
        is_next = f"IsNext share       {1 - summary.random_next / number:.4f}"
        assert is_next in summary.lines()

    def test_the_seed_decides(self, tmp_path, corpus, tokenizer):
        chunked = scan_documents([corpus], progress=False)

        def made(seed):
            path = tmp_path / "out"
            create_pretraining_data(
                chunked, [path], tokenizer, OPTIONS, random_seed=seed, progress=False
            )
            return path.read_bytes()

        assert made(1) == made(1) != made(2)

    def test_shuffled_over_chunks(self, tmp_path, tokenizer):
        (tmp_path / "in.txt").write_text(corpus_text(300))
        chunked = scan_documents([tmp_path / "in.txt"], chunk_bytes=8000, progress=False)
        create_pretraining_data(
            chunked, [tmp_path / "out"], tokenizer, OPTIONS, dupe_factor=1, progress=False
        )
        names = [first for first, _ in map(documents_of, examples_of(tmp_path / "out")) if first]
        order = [int(next(iter(name)).removeprefix("doc")) for name in names]
        middle = len(order) // 2
        assert abs(sum(order[:middle]) / middle - sum(order[middle:]) / middle) < 30


class TestChunks:
    @pytest.mark.parametrize("chunk_bytes", [1, 300, 2000, 10**9])
    def test_all_documents_in_order(self, tmp_path, chunk_bytes):
        texts = [corpus_text(30, seed=n) for n in range(3)]
        paths = [tmp_path / f"{n}.txt" for n in range(3)]
        for path, text in zip(paths, texts):
            path.write_text(text)
        chunked = scan_documents(paths, chunk_bytes, progress=False)
        found = [document for chunk in chunked.chunks for document in read_documents(chunk)]
        assert chunked.documents == len(found)
        assert [sum(1 for _ in read_documents(c)) for c in chunked.chunks] == [
            c.documents for c in chunked.chunks
        ]
        expected = [part.split("\n") for text in texts for part in text.strip().split("\n\n")]
        if not chunked.cuts:
            assert found == expected
        assert sum(found, []) == sum(expected, [])
        if chunk_bytes == 10**9:
            assert len(chunked.chunks) == 1 and not chunked.cuts
        if chunk_bytes > 1:
            assert all(chunk.documents > 1 for chunk in chunked.chunks)

    def test_long_documents_are_cut(self, tmp_path):
        (tmp_path / "a").write_text("one\n\n" + "word\n" * 100 + "\nlast\n")
        chunked = scan_documents([tmp_path / "a"], 50, progress=False)
        assert chunked.cuts and all(chunk.size <= 200 for chunk in chunked.chunks)
        found = [document for chunk in chunked.chunks for document in read_documents(chunk)]
        assert found[0] == ["one"] and found[-1] == ["last"]
        assert sum(found, []) == ["one"] + ["word"] * 100 + ["last"]
        # A small rest is put back to what it was cut from.
        (tmp_path / "b").write_text("word\n" * 25)
        chunked = scan_documents([tmp_path / "b"], 50, progress=False)
        assert [c.documents for c in chunked.chunks] == [1] and not chunked.cuts
        assert [len(d) for d in read_documents(chunked.chunks[0])] == [25]

    def test_blank_lines_and_line_ends(self, tmp_path):
        (tmp_path / "a").write_bytes("\ufeff\r\n\n\u3000\none\r\n two \n \t\n\n\nthree".encode())
        (tmp_path / "b").write_text("four\n")
        chunked = scan_documents([tmp_path / "a", tmp_path / "b"], progress=False)
        assert list(read_documents(chunked.chunks[0])) == [["one", "two"], ["three"], ["four"]]

    def test_bad_text(self, tmp_path):
        (tmp_path / "binary").write_bytes(b"fine\n\x00\x01\xff\n")
        with pytest.raises(DataError, match="binary, line 2 .* zero byte"):
            scan_documents([tmp_path / "binary"], progress=False)
        (tmp_path / "latin").write_bytes(b"fine\ncaf\xe9 au lait\n")
        with pytest.raises(DataError, match="latin, line 2 .* byte 0xe9 at position 3"):
            scan_documents([tmp_path / "latin"], progress=False)
        chunked = scan_documents([tmp_path / "latin"], errors="replace", progress=False)
        assert list(read_documents(chunked.chunks[0], "replace")) == [["fine", "caf au lait"]]
        (tmp_path / "empty").write_text("\n\n \n")
        with pytest.raises(DataError, match="1 files without a word"):
            scan_documents([tmp_path / "empty"], progress=False)
        with pytest.raises(DataError, match="absent"):
            scan_documents([tmp_path / "absent"], progress=False)
        with pytest.raises(ConfigError, match="errors='ignore'"):
            scan_documents([tmp_path / "latin"], errors="ignore")


class TestBadInput:
    def test_no_example_can_be_made(self, tmp_path, tokenizer):
        (tmp_path / "a").write_text("word1\n")
        chunked = scan_documents([tmp_path / "a"], progress=False)
        with pytest.raises(DataError, match="at least one pair"):
            create_pretraining_data(chunked, [tmp_path / "out"], tokenizer, OPTIONS, progress=False)
        assert [path.name for path in tmp_path.iterdir()] == ["a"]

    def test_sentences_without_tokens(self, tmp_path, tokenizer):
        (tmp_path / "a").write_text("word1 word2\n\n\x01\n\nword3\n\x01\nword4\n\x01\n")
        chunked = scan_documents([tmp_path / "a"], progress=False)
        summary = create_pretraining_data(
            chunked, [tmp_path / "out"], tokenizer, OPTIONS, dupe_factor=1, progress=False
        )
        assert chunked.documents == 3 and summary.documents == 2

    def test_no_room(self, tmp_path, corpus, tokenizer):
        """Files may not grow past a limit: first the runs are too large, then the output is."""
        chunked = scan_documents([corpus], progress=False)
        create_pretraining_data(chunked, [tmp_path / "out"], tokenizer, OPTIONS, progress=False)
        size = (tmp_path / "out").stat().st_size
        (tmp_path / "out").unlink()
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        # A run is about a tenth of the output.
        for limit, words in ((size // 100, "room for twice"), (size // 2, "must be writable")):
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
                with pytest.raises(UserError, match=f"{words}.*Nothing was written"):
                    create_pretraining_data(
                        chunked, [tmp_path / "out"], tokenizer, OPTIONS, progress=False
                    )
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]

    def test_killed_worker(self, tmp_path, corpus, tokenizer):
        others = set(multiprocessing.active_children())  # a server of other tests, say

        def kill_one():
            while not list(tmp_path.rglob("*.run")):  # until the workers are at work
                time.sleep(0.01)
            (set(multiprocessing.active_children()) - others).pop().kill()

        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        with pytest.raises(UserError, match="one was ended from outside"):
            create_pretraining_data(
                scan_documents([corpus], progress=False),
                [tmp_path / "out"],
                tokenizer,
                OPTIONS,
                dupe_factor=500,
                num_processes=2,
                progress=False,
            )
        killer.join()
        assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_runs_are_merged_by_key(tmp_path):
    rng = random.Random(0)
    expected, paths = [], []
    for number in range(5):
        keys = [rng.getrandbits(64) for _ in range(40 * number)]
        records = [rng.randbytes(rng.randint(0, 30)) for _ in keys]
        expected += zip(keys, records)
        paths.append(str(tmp_path / f"{number}.run"))
        write_sorted_run(paths[-1], keys, records)
    expected = [record for _, record in sorted(expected)]
    for merge_bytes in (100, 1 << 20):
        assert list(merge_runs(paths, merge_bytes)) == expected


def test_help_reads_like_a_manual():
    result = run("create_pretraining_data", "--help")
    for flag in ("--max_predictions_per_seq", "--encoding_errors", "(default: 0.15"):
        assert flag in result.stdout
    assert "All its pairs are then consecutive segments" in " ".join(result.stdout.split())
