"""Learnt vocabularies: deterministic, complete, and fit for the tokenizer."""

import bz2
import collections

import pytest

from bert_tf.errors import ConfigError, DataError
from bert_tf.text import BertTokenizer, learn_vocabulary, read_vocabulary
from bert_tf.text.vocabulary_learning import (
    SPECIAL_TOKENS,
    count_words,
    learn_from_counts,
    read_lines,
)
from tests.text import oracle
from tests.tools.running import run


@pytest.fixture(scope="module")
def reviews(materials):
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    return bz2.open(path, "rt").read().split("\n")[:400]


def test_count_words(reviews):
    expected = collections.Counter(word for text in reviews for word in oracle.basic_tokens(text))
    assert count_words(reviews, progress=False) == expected


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe"])
def test_learnt_vocabulary(reviews, algorithm):
    vocabulary = learn_vocabulary(reviews, 800, algorithm, num_unused=3, progress=False)
    assert vocabulary[:8] == [*SPECIAL_TOKENS, "[unused0]", "[unused1]", "[unused2]"]
    assert 700 < len(vocabulary) <= 800
    assert len(set(vocabulary)) == len(vocabulary)
    assert "the" in vocabulary and "." in vocabulary and "##." not in vocabulary
    tokenizer = BertTokenizer(vocabulary)
    ids = tokenizer.tokenize(reviews).flat_values.numpy()
    assert (ids == tokenizer.unk_token_id).mean() < 0.01
    assert not ((ids >= 5) & (ids < 8)).any()


@pytest.mark.parametrize("algorithm", ["wordpiece", "bpe"])
def test_shards_do_not_change_the_result(reviews, algorithm):
    reviews = reviews[:100]
    whole = learn_vocabulary(reviews, 300, algorithm, progress=False)
    shards = [count_words(reviews[i::3], progress=False) for i in (2, 0, 1)]
    total = sum(map(collections.Counter, shards), collections.Counter())
    assert list(total) != list(count_words(reviews, progress=False))  # the order is another
    assert learn_from_counts(total, 300, algorithm, progress=False) == whole


def naive_bpe(counts, number):
    """Merges of the most frequent pair, recounted from nothing each time."""
    words = {
        (word[0], *("##" + char for char in word[1:])): count for word, count in counts.items()
    }
    learnt = []
    while len(learnt) < number:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merged = best[0] + best[1].removeprefix("##")
        if merged not in learnt:
            learnt.append(merged)
        new_words = {}
        for word, count in words.items():
            result = []
            for piece in word:
                if result and (result[-1], piece) == best:
                    result[-1] = merged
                else:
                    result.append(piece)
            new_words[tuple(result)] = count
        words = new_words
    return learnt


def test_bpe_merges_are_the_naive_ones():
    counts = {"low": 5, "lower": 2, "newest": 6, "widest": 3, "aaaa": 4, "aaaaa": 2, "banana": 7}
    vocabulary = learn_from_counts(counts, 40, "bpe", progress=False)
    characters = {piece for word in counts for piece in [word[0], *("##" + c for c in word[1:])]}
    learnt = vocabulary[len(SPECIAL_TOKENS) + len(characters) :]
    assert len(learnt) > 10
    assert learnt == naive_bpe(counts, len(learnt))


def test_chinese_by_characters():
    vocabulary = learn_vocabulary(["我用iPhone手机。"] * 3, 60, progress=False)
    assert {"我", "用", "手", "机", "。"} <= set(vocabulary)
    assert "##机" not in vocabulary


def test_bad_options():
    for options in (
        {"algorithm": "unigram"},
        {"min_frequency": 0},
        {"special_tokens": ["[UNK]", "[UNK]"]},
    ):
        with pytest.raises(ConfigError, match="Received"):
            learn_vocabulary(["a a"], 50, progress=False, **options)
    with pytest.raises(DataError, match="Received: 1 distinct words"):
        learn_vocabulary(["a"], 50, progress=False)
    with pytest.raises(DataError, match="single characters"):
        learn_vocabulary(["abcdefgh"] * 2, 10, progress=False)


def test_read_lines(tmp_path):
    (tmp_path / "a").write_bytes(b"one\r\ntwo")
    (tmp_path / "b").write_bytes(b"three\n\xff\n")
    lines = read_lines([tmp_path / "a", tmp_path / "b"], progress=False)
    assert [next(lines) for _ in range(3)] == ["one", "two", "three"]
    with pytest.raises(DataError, match="b, line 2 must be UTF-8"):
        next(lines)
    with pytest.raises(DataError, match="none"):
        next(read_lines([tmp_path / "none"], progress=False))


@pytest.mark.parametrize("output, words", [("a.txt", "an input file"), (".", "be a file")])
def test_the_text_is_not_replaced(tmp_path, output, words):
    text = tmp_path / "a.txt"
    text.write_text("low low")
    flags = [f"--input_file={text}", f"--output_file={tmp_path / output}", "--vocab_size=40"]
    result = run("build_vocab", *flags)
    assert result.returncode == 1 and words in result.stderr, result.stderr
    assert len(result.stderr.splitlines()) == 1 and text.read_text() == "low low"


def test_the_next_command_has_the_case_of_the_vocabulary(tmp_path):
    (tmp_path / "a[1].txt").write_text("low low Low Low")
    flags = [f"--input_file={tmp_path}/a[1].txt", f"--output_file={tmp_path}/vocab.txt"]
    result = run("build_vocab", *flags, "--do_lower_case=false", "--vocab_size=40")
    assert result.returncode == 0, result.stderr
    assert "--do_lower_case=false" in result.stdout.splitlines()[-1]


def test_tools(tmp_path):
    (tmp_path / "text.txt").write_text("low lower lowest newest\n" * 5)
    vocabulary = tmp_path / "vocab.txt"
    made = run(
        "build_vocab",
        f"--input_file={tmp_path}/*.txt",
        f"--output_file={vocabulary}",
        "--vocab_size=40",
        "--algorithm=bpe",
    )
    assert made.returncode == 0, made.stderr
    assert {"low", "##est"} <= set(read_vocabulary(vocabulary))
    assert "create_pretraining_data" in made.stdout and "lower_case" not in made.stdout
    shown = run("tokenize_text", f"--vocab_file={vocabulary}", "--text=Lowest", "--json")
    assert shown.returncode == 0, shown.stderr
    assert '"pieces": ["lowest"], ' in shown.stdout
    assert '"char_offsets": [[0, 6]]' in shown.stdout
