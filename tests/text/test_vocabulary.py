"""Vocabulary files: reading, checks, writing."""

import json

import pytest

from bert_tf.errors import DataError
from bert_tf.text import BertTokenizer, read_vocabulary, write_vocabulary

PIECES = ["[PAD]", "[UNK]", "hello", "##s", "中"]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_any_line_ends(tmp_path, line_end, last):
    path = tmp_path / "vocab.txt"
    path.write_bytes((line_end.join(PIECES) + line_end * last).encode())
    assert read_vocabulary(path) == PIECES


def test_byte_order_mark_and_odd_spaces(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\ufeff[PAD]\na \n\u2028\nb\u2028\n".encode())
    assert read_vocabulary(path) == ["[PAD]", "a", "\u2028", "b"]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "at least one piece"),
        (b"a\n\nb\n", r"vocab.txt, line 2 must be a non-empty piece"),
        (b"a\nb\na\n", r"vocab.txt, line 3 .*'a', which is also .*line 1"),
        (b"a\nb\n\xff\n", r"vocab.txt, line 3 must be UTF-8"),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_vocabulary(path)


def test_missing_file(tmp_path):
    with pytest.raises(DataError, match="none.txt must be a vocabulary file"):
        read_vocabulary(tmp_path / "none.txt")


def test_write_and_read(tmp_path):
    path = tmp_path / "vocab.txt"
    write_vocabulary(PIECES, path)
    assert path.read_bytes() == ("\n".join(PIECES) + "\n").encode()
    with pytest.raises(DataError, match="line 2"):
        write_vocabulary(["a", "b\n"], path)
    assert read_vocabulary(path) == PIECES


def test_tokenizer_json(tmp_path, minilm):
    assert read_vocabulary(minilm / "tokenizer.json") == read_vocabulary(minilm / "vocab.txt")
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "added_tokens": [{"id": 2, "content": "[X]"}],
                "model": {"type": "WordPiece", "vocab": {"b": 1, "a": 0}},
            }
        )
    )
    assert read_vocabulary(path) == ["a", "b", "[X]"]
    for content, message in [
        ("{", "tokenizer.json must be a valid JSON file.*line 1"),
        ("[]", "must be a Hugging Face tokenizer"),
        ("{}", "must be a WordPiece model .*vocab.txt"),
        ('{"model": {"type": "BPE", "vocab": {}}}', "WordPiece"),
        ('{"model": {"vocab": {"a": 0, "b": 2}}}', "no piece with the id 1"),
    ]:
        path.write_text(content)
        with pytest.raises(DataError, match=message):
            read_vocabulary(path)


def test_directory_with_tokenizer_json_only(tmp_path):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "A"]
    (tmp_path / "tokenizer.json").write_text(
        json.dumps(
            {
                "normalizer": {
                    "type": "BertNormalizer",
                    "lowercase": False,
                    "strip_accents": None,
                    "handle_chinese_chars": True,
                },
                "model": {"type": "WordPiece", "vocab": {t: i for i, t in enumerate(special)}},
            }
        )
    )
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert not tokenizer.lowercase
    assert tokenizer.tokenize(["A"]).to_list() == [[5]]


def test_keras_hub_preset(tmp_path):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "A"]
    (tmp_path / "assets" / "tokenizer").mkdir(parents=True)
    (tmp_path / "assets" / "tokenizer" / "vocabulary.txt").write_text("\n".join(special))
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"class_name": "BertTokenizer", "config": {"lowercase": False}})
    )
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.vocabulary, tokenizer.lowercase) == (special, False)


@pytest.mark.parametrize("piece", ["a ", " a", "a\u2028", "a\nb"])
def test_a_piece_that_readers_would_change_is_not_written(tmp_path, piece):
    with pytest.raises(DataError, match="line 2 must be a piece without line ends"):
        write_vocabulary(["a", piece], tmp_path / "vocab.txt")
    assert not list(tmp_path.iterdir())
