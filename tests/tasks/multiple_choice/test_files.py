"""SWAG's CSV files: what is read, and what is refused with file and line."""

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.multiple_choice.files import ChoiceExample, read_swag

# The header of rowanz/swagaf's val.csv; the row is made up.
HEADER = (
    ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
)
ROW = '0,lsmdc1,18313,"He stops. He",He stops.,He,gold,turns.,"sits, ""up"".",runs.,sings.,1'


def write(path, *lines, newline="\n"):
    path.write_bytes((newline.join(lines) + newline).encode())
    return path


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_reads_the_official_layout(tmp_path, newline):
    path = write(tmp_path / "val.csv", HEADER, ROW, newline=newline)
    choices = ("He turns.", 'He sits, "up".', "He runs.", "He sings.")
    assert read_swag(path) == [ChoiceExample("He stops.", choices, 1)]


def test_reads_csv_whatever_its_name_is(tmp_path):
    expected = read_swag(write(tmp_path / "val.csv", HEADER, ROW))
    for name in ("val", "val.txt", "val.tsv", "val.csv.bak"):
        assert read_swag(write(tmp_path / name, HEADER, ROW)) == expected


def test_reads_a_test_file_without_labels(tmp_path):
    path = write(tmp_path / "test.csv", HEADER.removesuffix(",label"), ROW.removesuffix(",1"))
    assert read_swag(path, labels=False)[0].label is None
    with pytest.raises(DataError, match="without label"):
        read_swag(path)


@pytest.mark.parametrize(
    "lines,words",
    [
        ([HEADER], "must have examples"),
        ([], "must have examples"),
        (["a,b", "1,2"], "without sent1, sent2"),
        ([HEADER, ROW, ROW[:-1] + "4"], "line 3 must have a label from 0 to 3. Received: '4'"),
        ([HEADER, ROW[:-1]], "line 2 must have a label from 0 to 3. Received: ''"),
        ([HEADER, ROW.replace("runs.", "")], "line 2.*nothing in ending2"),
        ([HEADER, "0,lsmdc1,18313,He"], "line 2 must have 12 fields"),
        ([HEADER, ROW + ",more"], "line 2 must have 12 fields"),
        ([HEADER, ROW, '1,"open'], "must be CSV"),
    ],
)
def test_wrong_files(tmp_path, lines, words):
    path = tmp_path / "train.csv"
    path.write_text("".join(f"{line}\n" for line in lines))
    with pytest.raises(DataError, match=f"train.csv.*{words}"):
        read_swag(path)


def test_not_utf8_and_missing(tmp_path):
    path = tmp_path / "train.csv"
    path.write_bytes(f"{HEADER}\n{ROW}\n".encode() + b"\xff\n")
    with pytest.raises(DataError, match="UTF-8"):
        read_swag(path)
    with pytest.raises(DataError, match="absent.csv"):
        read_swag(tmp_path / "absent.csv")
