"""CoNLL columns and word/tag text, and their holes."""

import pytest

from bert_tf.errors import DataError, UserError
from bert_tf.tasks.token_classification.files import (
    conll_lines,
    read_conll,
    read_tag_predictions,
    read_tagged_text,
    read_word_tag,
)

CONLL = """-DOCSTART- -X- O O

U.N. NNP I-NP I-ORG
official NN I-NP O

Ekeus NNP I-NP I-PER
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "file.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_conll_columns(write):
    path = write(CONLL)
    sentences = read_conll(path)
    assert [s.words for s in sentences] == [["U.N.", "official"], ["Ekeus"]]
    assert [s.tags for s in sentences] == [["I-ORG", "O"], ["I-PER"]]
    assert read_conll(path, tag_column=1)[0].tags == ["NNP", "NN"]
    assert read_conll(path, tag_column=None)[0].tags is None
    assert read_conll(write("a\nb\n\nc\n"))[0] == (["a", "b"], None)
    # An ideographic space is a word; Windows line ends and a byte-order mark are none.
    assert read_conll(write("\ufeff\u3000\tO\r\na\tB-X\r\n")) == [(["\u3000", "a"], ["O", "B-X"])]


@pytest.mark.parametrize(
    "text, message",
    [
        ("a O\nb\n", "line 2 must have 2 columns"),
        ("a\tO\nb\t\n", "line 2 must have 2 columns"),
        ("a O\nb O X\n", "line 2 must have 2 columns"),
        ("a O\n\xff".encode("latin-1"), "line 2 must be UTF-8"),
        ("\n\n", "no sentences"),
    ],
)
def test_holes_in_columns(write, text, message):
    with pytest.raises(DataError, match=message):
        read_conll(write(text))


def test_columns_that_are_not_there(write):
    with pytest.raises(DataError, match="line 3 must have a column 4"):
        read_conll(write(CONLL), tag_column=4)
    with pytest.raises(DataError, match="must be a data file"):
        read_conll("nowhere.txt")
    with pytest.raises(UserError, match="format"):
        read_tagged_text(write(CONLL), "xml")


def test_word_tag_text(write):
    sentences = read_word_tag(write("江/nr  泽民/nr 1/2/m\n\n//w\n"))
    assert sentences == [(["江", "泽民", "1/2"], ["nr", "nr", "m"]), (["/"], ["w"])]
    for hole in ("江/nr 泽民", "江/nr /w", "江/nr 泽民/"):
        with pytest.raises(DataError, match="line 1, word 2 must be word/tag"):
            read_word_tag(write(hole))
    with pytest.raises(DataError, match="no sentences"):
        read_word_tag(write("\n"))


def test_the_corpus(materials):
    sentences = read_word_tag(materials / "chinese_text" / "199801.txt")
    assert len(sentences) == 19484
    assert sentences[1].tags[-2:] == ["nr", "nr"]


def test_conll_2003s_own_layout(materials):
    first, second = read_conll(materials / "format_fixtures" / "conll2003.txt")
    assert first.words == ["U.N.", "official", "Ekeus", "heads", "for", "Baghdad", "."]
    assert first.tags == ["I-ORG", "O", "I-PER", "O", "O", "I-LOC", "O"]
    assert second.tags.count("I-ORG") == 1


def test_written_lines_are_read_again(write):
    columns = [(["a", "b"], ["O", "B-X"], ["O", "O"]), (["c"], ["O"], ["I-Y"])]
    path = write("".join(conll_lines(columns)))
    assert [s.tags for s in read_conll(path, tag_column=1)] == [["O", "B-X"], ["O"]]
    assert [s.tags for s in read_conll(path)] == [["O", "O"], ["I-Y"]]
    with pytest.raises(ValueError):
        list(conll_lines([(["a"], [])]))


def test_predictions_and_gold_tags(tmp_path, write):
    path = write("a B-X B-X\nb O B-Y\n\nc O O\n")
    expected = [["a", "b"], ["c"]], [["B-X", "O"], ["O"]], [["B-X", "B-Y"], ["O"]]
    assert read_tag_predictions(path) == expected
    gold = tmp_path / "gold.txt"
    gold.write_text("a/B-X b/O\nc/O\n")
    assert read_tag_predictions(path, gold, "word_tag") == expected
    gold.write_text("NN a B-X -\nNN b O -\n\nNN c O -\n")
    assert read_tag_predictions(path, gold, word_column=1, tag_column=2) == expected
    for text, message in (
        ("a B-X\nd O\n\nc O\n", "sentence 1: 'a b', not 'a d'"),
        ("a B-X\nb O\n", "must have the 1 sentences of"),
        ("a\nb\n", "Received: only words"),
    ):
        gold.write_text(text)
        with pytest.raises(DataError, match=message):
            read_tag_predictions(path, gold)
    with pytest.raises(DataError, match="two columns. Pass the file with the gold tags"):
        read_tag_predictions(write("a O\n"))
