"""Files of GloVe and word2vec, most of them written here byte by byte as their programs do."""

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import DataError
from research.baselines import read_word_vectors
from research.baselines.word_vector_files import _LONGEST_LINE

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "film", "bad", "##s", "##ing", "été"]
# In a file, in the order of frequencies. The last word is no piece.
WORDS = {
    "Film": [9.0, 9.0, 9.0],
    "film": [0.5, -1.0, 2.5e-3],
    "Bad": [1.0, 2.0, 3.0],
    "BAD": [7.0, 7.0, 7.0],
    "ing": [4.0, 5.0, 6.0],
    "s": [8.0, 8.0, 8.0],
    "##s": [-4.0, -5.0, -6.0],
    "ÉTÉ": [0.0, 0.25, 0.0],
    "at name@domain.com": [1.0, 1.0, 1.0],
}


def lines(end="\n"):
    rows = ((word, " ".join(map(repr, numbers))) for word, numbers in WORDS.items())
    return "".join(f"{word} {numbers}{end}" for word, numbers in rows)


def glove():
    return lines().encode()


def word2vec_text():
    return f"{len(WORDS)} 3\n{lines(end=' ' + chr(10))}".encode()  # each number ends with a space


def word2vec_binary(after="\n"):
    """word2vec writes a line end after the numbers, and gensim writes nothing there."""
    words = [word.replace(" ", "_") for word in WORDS]
    rows = zip(words, WORDS.values(), strict=True)
    parts = (f"{w} ".encode() + np.array(v, "<f4").tobytes() + after.encode() for w, v in rows)
    return f"{len(WORDS)} 3\n".encode() + b"".join(parts)


def read(directory, content, name="vectors.txt", lowercase=True):
    path = directory / name
    path.write_bytes(content)
    return read_word_vectors(path, bert_tf.BertTokenizer(PIECES, lowercase=lowercase))


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (glove(), "glove.txt"),
        (glove().rstrip(b"\n"), "glove.txt"),
        (glove().replace(b"\n", b"\r\n"), "glove.txt"),
        (word2vec_text(), "vectors.txt"),
        (word2vec_binary(), "vectors.bin"),
        (word2vec_binary(after=""), "vectors.bin"),
    ],
)
@pytest.mark.parametrize("lowercase", [True, False])
def test_the_pieces_of_a_file(content, name, lowercase, tmp_path):
    vectors, has_vector = read(tmp_path, content, name, lowercase)
    expected = {"film": "film", "##s": "##s", "##ing": "ing"}
    if lowercase:  # the first of "Bad" and "BAD"
        expected |= {"bad": "Bad", "été": "ÉTÉ"}
    assert vectors.dtype == np.float32 and vectors.shape == (len(PIECES), 3)
    assert {piece for piece, has in zip(PIECES, has_vector, strict=True) if has} == {*expected}
    for piece, vector in zip(PIECES, vectors, strict=True):
        wanted = WORDS[expected[piece]] if piece in expected else np.zeros(3)
        np.testing.assert_array_equal(vector, np.float32(wanted), err_msg=piece)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("test_glove.txt", {"no_header": True}),
        ("word2vec_pre_kv_c", {}),
        ("euclidean_vectors.bin", {"binary": True}),
    ],
)
def test_files_of_the_programs_as_gensim_reads_them(name, options):
    models = pytest.importorskip("gensim.models", reason="needs gensim: pip install gensim")
    path = pytest.importorskip("gensim.test.utils", reason="needs gensim").datapath(name)
    expected = models.KeyedVectors.load_word2vec_format(path, **options)
    tokenizer = bert_tf.BertTokenizer(PIECES[:5] + expected.index_to_key, lowercase=False)
    vectors, _ = read_word_vectors(path, tokenizer)
    np.testing.assert_array_equal(vectors[5:], expected.vectors)


def binary(header, *rows):
    return (
        header + b"\n" + b"".join(word + np.array(values, "<f4").tobytes() for word, values in rows)
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "1 to 4096 columns, .* Received: 0"),
        (b"film\t0.5\t1\n", "columns, which are separated by single spaces. Received: 0"),
        (b"film 0.5 1\nbad 1\n", "line 2, must have a word and 2 numbers"),
        (b"film 0.5 1\nbad 1 2 3\n", "line 2, must have a word and 2 numbers .* b'bad 1 2 3'"),
        (b"film 0.5 1\n\n", "line 2, must have a word and 2 numbers"),
        (b"film 0.5 1\nbad 1 x\n", "line 2, must have numbers after the word. .*x"),
        (b"film 0.5 1\nbad 1 nan\n", "line 2, must have finite numbers. Received: b'nan'"),
        (b"film 0.5 1\nbad 1e39 2\n", "line 2, must have finite numbers. Received: b'1e39'"),
        (b"film 0.5 1\na 1 2\nfilm 1 2\n", "line 3, must have a new word. .*film', as in line 1"),
        (b"3 2\nfilm 0.5 1\nbad 1 2\n", "the 3 vectors that it begins with. Received: 2"),
        (b"1 2\nfilm 0.5 1\nbad 1 2\n", "the 1 vectors that it begins with. Received: 2"),
        (b"1 2\nfilm 0.5 1 3\n", "line 2, must have a word and 2 numbers"),
        (b"999999999999 99999999\nfilm 0.5 1\n", "1 to 4096 columns, .* Received: 99999999"),
        (b"other 0.5 1\n", "a vector of one of the 10 pieces of the vocabulary"),
        (b"film 0.5 " + b"1" * _LONGEST_LINE, "lines of less than"),
    ],
)
def test_text_that_is_refused(content, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begin with its number of words"),
        (glove(), "begin with its number of words"),
        (b"2 99999999\nfilm ", "1 to 4096 columns, .* Received: 99999999"),
        (b"999999999999 2\nfilm \0\0\0\0\0\0\0\0", "999999999999 vectors .*: word 2 with 0"),
        (binary(b"1 2", (b"film ", [1, 2, 3])), "the 1 vectors .*Received: more"),
        (binary(b"1 3", (b"film ", [1, 2])), "word 1 with 8 of 12 bytes"),
        (binary(b"1 2", (b"film", [1e-9, 2])), "the 1 vectors"),
        (b"1 2\n" + b"x" * 10000, "the 1 vectors"),
        (binary(b"1 2", (b"film ", [1, np.inf])), "word 1, must have finite numbers. .*inf"),
        (binary(b"2 1", (b"film ", [1]), (b"film ", [1])), "word 2, must have a new word"),
    ],
)
def test_binary_files_that_are_refused(content, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read(tmp_path, content, "vectors.bin")


def test_words_that_are_not_utf8_are_no_pieces(tmp_path):
    _, has_vector = read(tmp_path, b"\xe9t\xe9 1\nfilm 2\n\xe9t\xe9 3\n")
    assert has_vector.sum() == 1


def test_files_that_cannot_be_opened(tmp_path):
    tokenizer = bert_tf.BertTokenizer(PIECES)
    for path in (tmp_path / "missing.txt", tmp_path, "/dev/zero"):
        with pytest.raises(DataError, match="must be a file of word vectors"):
            read_word_vectors(path, tokenizer)
