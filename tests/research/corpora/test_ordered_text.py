"""Ordered text out of a SWORD module: one made by hand, and the real one."""

import shutil
import struct
import zlib

import pytest

from bert_tf.errors import DataError
from research.corpora.ordered_text import read_ordered_text, split_sentences
from tests.tools.running import run

VERSES = [
    [
        '<milestone n="x"/>',
        '<div type="book"/> <title>The First Book</title>',
        '<chapter n="1" osisID="A.1" sID="A.1"/>',
        '<w lemma="1">In</w> <w>the</w> <w>beginning</w>,<note placement="foot">1:1 <rdg>Or'
        "</rdg></note><w>there</w> <w>was</w> <w>light</w><note>no</note>. Who &amp; what",
        'knew <q who="him">it</q>? “They did.” <l level="1"/>So it<l level="2"/>goes',
        '<chapter eID="A.1"/><chapter n="2" osisID="A.2" sID="A.2"/>',
        "Another.",
    ],
    ["<chapter sID='B.1'/>", "Last ‘words’."],
]


def write_module(folder):
    """Two blocks in the first part, one in the second."""
    folder.mkdir(parents=True)
    for part in ("ot", "nt"):
        packed, index = b"", b""
        for block in VERSES if part == "ot" else VERSES[1:]:
            content = " ".join(block).encode()
            squeezed = zlib.compress(content)
            index += struct.pack("<III", len(packed), len(squeezed), len(content))
            packed += squeezed
        (folder / f"{part}.bzs").write_bytes(index)
        (folder / f"{part}.bzz").write_bytes(packed)


def test_made_module(tmp_path):
    write_module(tmp_path / "usr" / "share")
    assert list(read_ordered_text(tmp_path)) == [
        ["In the beginning, there was light.", "Who & what knew it?", "“They did.”", "So it goes"],
        ["Another."],
        ["Last ‘words’."],
        ["Last ‘words’."],
    ]


def test_damaged_module(tmp_path):
    with pytest.raises(DataError, match="no ot.bzz"):
        list(read_ordered_text(tmp_path))
    write_module(tmp_path / "m")
    (tmp_path / "m" / "ot.bzz").write_bytes((tmp_path / "m" / "ot.bzz").read_bytes()[:-9])
    with pytest.raises(DataError, match="those of a SWORD zText module"):
        list(read_ordered_text(tmp_path))
    (tmp_path / "m" / "nt.bzz").unlink()
    (tmp_path / "m" / "ot.bzs").write_bytes(b"")
    with pytest.raises(DataError, match="those of a SWORD zText module"):
        list(read_ordered_text(tmp_path))


def test_split_sentences():
    assert split_sentences("He said, “Go!” They went. Why?\n‘I (really) do.’ and 3.5 more") == [
        "He said, “Go!”",
        "They went.",
        "Why?",
        "‘I (really) do.’ and 3.5 more",
    ]
    assert split_sentences("  ") == []


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="needs apt-get's sword-text-web")
def test_real_module(materials, tmp_path):
    chapters = list(read_ordered_text(materials / "ordered_text"))
    sentences = [sentence for chapter in chapters for sentence in chapter]
    assert len(chapters) > 1300 and len(sentences) > 45_000
    assert sum(map(len, sentences)) > 4_500_000
    assert "In the beginning, God created the heavens and the earth." in sentences
    assert not any(mark in sentence for sentence in sentences for mark in "<>&\n")

    result = run(
        "research.prepare_ordered_text",
        f"--input_dir={materials}/ordered_text",
        f"--output_file={tmp_path}/train.txt",
        f"--heldout_file={tmp_path}/heldout.txt",
        "--heldout_every=10",
    )
    assert result.returncode == 0, result.stderr
    train, heldout = (
        (tmp_path / f"{name}.txt").read_text().strip().split("\n\n")
        for name in ("train", "heldout")
    )
    assert ["\n".join(chapter) for chapter in chapters[9::10]] == heldout
    assert len(train) + len(heldout) == len(chapters)


def test_without_apt_get_it_is_said(tmp_path):
    result = run(
        "research.fetch_materials",
        "--materials=ordered_text",
        f"--directory={tmp_path}",
        environment={"PATH": str(tmp_path)},
    )
    assert result.returncode == 0, result.stderr
    assert "ordered_text is skipped" in result.stderr and "apt-get download" in result.stderr
