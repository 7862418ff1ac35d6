"""Verse-aligned Bibles, aligned manuals and package descriptions, from small files made here."""

import pytest

from bert_tf.errors import DataError
from research.corpora import bibles, manuals, package_descriptions, split_by_group
from tests.tools.running import run


def write_bible(path, verses):
    """`verses` are pairs of a key and what follows its number."""
    text = "".join(f"<sup>{key % 1000}</sup>{verse}" for key, verse in verses)
    starts = dict.fromkeys((key for key, _ in verses), 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"from a import b\nbible = b(b.C, {text!r}, {starts!r}, {starts!r})\n")


KING_JAMES = [
    (7001001, " It [was] the king’s.</p><p>"),
    (7001002, " Unto him"),
    (8001001, " Ruth"),
    (11001001, " Kings"),
    (19003001, " LORD, how are they increased"),
    (19003002, " Many there be"),
    (23065001, " I am sought"),
    (40017021, " Howbeit this kind"),
]
BASIC_ENGLISH = [
    (7001001, " It was the king's."),
    (7001002, " To him"),
    (8001001, " Ruth"),
    (11001001, " Kings"),
    (19003001, " A Psalm."),
    (19003002, "\\3:1\\Lord, how they are increased"),
    (19003003, "\\3:2\\There are numbers"),
    (23066001, " I have been ready"),
    (40017021, "[] "),
]


def test_verses_are_aligned_by_their_numbers(tmp_path):
    write_bible(tmp_path / "kjv.py", KING_JAMES)
    write_bible(tmp_path / "bbe.py", BASIC_ENGLISH)
    versions = [list(bibles.read_verses(tmp_path / name)) for name in ("kjv.py", "bbe.py")]
    pairs, dropped = bibles.align(*versions)
    assert list(pairs.values()) == [
        ("It was the king's.", "It was the king's."),
        ("Unto him", "To him"),
        ("Ruth", "Ruth"),
        ("Kings", "Kings"),
        ("Many there be", "There are numbers"),
    ]
    assert dropped == {
        "with a repeated number": 1,
        "in chapters that are numbered differently": 1,
        "without a complete text": 1,
    }
    splits = bibles.split_by_book(pairs)
    assert [len(splits[split]) for split in ("train", "dev", "test")] == [2, 1, 2]
    assert splits["dev"] == [("Kings", "Kings")]


def test_a_bible_is_read_as_data(tmp_path):
    path = tmp_path / "bible.py"
    write_bible(path, KING_JAMES)
    path.write_text(path.read_text().replace("8001001: 0", "8001002: 0"))
    with pytest.raises(DataError, match="must have the verses that it lists"):
        list(bibles.read_verses(path))
    path.write_text("bible = b(c, open('secret'), {})")  # not a literal, and not called
    with pytest.raises(DataError, match="must assign one call with a text"):
        list(bibles.read_verses(path))
    with pytest.raises(DataError, match="must be a data file"):
        list(bibles.read_verses(tmp_path / "none"))


def chapter(body):
    return f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>'


def test_paragraphs_are_aligned_by_their_sections(tmp_path):
    (tmp_path / "en").write_text(
        chapter(
            '<div class="toc"><p>Contents</p></div><h1><a id="one"/>One</h1><p>The <b>first</b>\n '
            'paragraph.</p><p>ls -l</p><p>A.</p><a id="two"/><ul><li><p>In a list</p></li></ul>'
        )
    )
    (tmp_path / "zh").write_text(
        chapter(
            '<div class="toc"><p>目录</p></div><h1><a id="one"/>一</h1><p>第一<b>段</b>。</p>'
            '<p>ls -l</p><p>这是完全不同的内容。</p><a id="two"/><p>在列表里</p>'
        ),
        encoding="utf-8",
    )
    sections = [manuals.read_sections(tmp_path / name) for name in ("en", "zh")]
    pairs, dropped = manuals.align_sections(*sections)
    assert pairs == [("one", "The first paragraph.", "第一段。")]
    assert dropped == {
        "that are not translated": 1,
        "whose lengths do not fit": 1,
        "in sections of another structure": 1,
    }
    assert manuals.without_repetitions([*pairs, ("two", pairs[0][1], "别的")]) == pairs
    (tmp_path / "en").write_text("<p>")
    with pytest.raises(DataError, match="must be a chapter in XHTML"):
        manuals.read_sections(tmp_path / "en")


DOCUMENT = "This library reads and writes files of every format that is known to us."


def test_package_descriptions(tmp_path):
    available = "Package: a\n\nPackage: a-dev\nSource: a (1.0)\nTag: x,\n y\n\nPackage: b\n"
    (tmp_path / "available").write_text(available)
    (tmp_path / "descriptions").write_text(
        f"Package: a\nDescription-en: reads  files\n {DOCUMENT}\n .\n  * second part\n\n"
        "Package: a-dev\nDescription-en: reads files (headers)\n Too short.\n\n"
        "Package: b\nDescription-en: transitional package\n " + DOCUMENT + "\n\n"
        f"Package: b\nDescription-en: copy\n {DOCUMENT} * second part\n\n"
        "Package: gone\nDescription-en: gone\n gone\n"
    )
    descriptions = list(package_descriptions.read_descriptions(tmp_path))
    assert [row.source_package for row in descriptions] == ["a", "a", "b", "b"]
    kept, dropped = package_descriptions.usable(descriptions)
    assert [tuple(row) for row in kept] == [("a", "a", f"{DOCUMENT} * second part", "reads files")]
    assert sorted(dropped.values()) == [1, 1, 1]
    (tmp_path / "available").write_text("no field\n")
    with pytest.raises(DataError, match="line 1 must be a field"):
        list(package_descriptions.read_descriptions(tmp_path))


def test_a_group_is_in_one_split():
    splits = split_by_group(range(100), [number // 5 for number in range(100)], seed=1)
    groups = {split: {number // 5 for number in rows} for split, rows in splits.items()}
    assert [len(groups[split]) for split in ("train", "dev", "test")] == [16, 2, 2]
    assert len(set.union(*groups.values())) == 20
    assert sorted(number for rows in splits.values() for number in rows) == list(range(100))
    assert splits == split_by_group(range(100), [number // 5 for number in range(100)], seed=1)


def test_the_tool(tmp_path):
    flags = [f"--materials_dir={tmp_path}", f"--output_dir={tmp_path}/out", "--corpus=bible"]
    result = run("research.prepare_translation_data", *flags)
    assert result.returncode == 1
    assert "fetch_materials --materials=bible_kjv,bible_bbe" in result.stderr
    write_bible(tmp_path / "bible_kjv" / "html_bible.py", KING_JAMES)
    write_bible(tmp_path / "bible_bbe" / "html_bible.py", BASIC_ENGLISH)
    result = run("research.prepare_translation_data", *flags)
    assert result.returncode == 0, result.stderr
    assert "dropped: 1 with a repeated number" in result.stdout and "test: 2 pairs" in result.stdout
    assert (tmp_path / "out" / "dev.tsv").read_text() == "Kings\tKings\n"
