"""docs/results.md: the pictures show the numbers that their tables have now."""

import pathlib

import numpy as np
import pytest
from PIL import Image

from research import draw_readme, draw_results
from research.table_pictures import draw_table, parse_cell, parse_table

PICTURES = draw_results.tables_with_pictures(draw_results.DOCUMENT.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "cell, numbers",
    [
        ("0.830", (0.83, 0.83, 0.83)),
        ("0.823 ± 0.009", (0.823, 0.814, 0.832)),
        ("0.332 (0.294–0.369)", (0.332, 0.294, 0.369)),
        ("-0.05 (-0.15 to +0.08)", (-0.05, -0.15, 0.08)),
        ("22,715,526", (22715526, 22715526, 22715526)),
        ("–", (np.nan, np.nan, np.nan)),
        ("", (np.nan, np.nan, np.nan)),
        ("about 5", (np.nan, np.nan, np.nan)),
    ],
)
def test_cell(cell, numbers):
    found = parse_cell(cell)
    np.testing.assert_allclose((found.value, found.low, found.high), numbers)


def test_names_of_rows():
    lines = ["| data | `--flag` | F1 |", "|---|---|---:|", "| a | x | 1 |", "| | `y` | 2 ± 1 |"]
    table = parse_table(lines)
    assert table.names == ["a, x", "a, y"]
    assert [cell.value for cell in table.columns["F1"]] == [1, 2]


def test_draws_columns_with_missing_and_negative_numbers(tmp_path):
    lines = [
        "| | a | b | c |",
        "|---|---:|---:|---:|",
        "| x | 1 (-2 to 3) | – | |",
        "| y | 2,000,000 | 3 | |",
    ]
    draw_table(parse_table(lines), str(tmp_path / "out.png"))
    with Image.open(tmp_path / "out.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    assert (pixels == (0x1F, 0x6F, 0xEB)).all(axis=-1).any()  # the points


def test_every_picture_is_in_the_document():
    files = {
        f"results/{path.name}" for path in (draw_results.DOCUMENT.parent / "results").iterdir()
    }
    assert set(PICTURES) == files
    assert all(PICTURES.values())  # each has a table before it


@pytest.mark.parametrize("path", PICTURES)
def test_pictures_show_the_tables(path):
    with Image.open(pathlib.Path(draw_results.DOCUMENT).parent / path) as picture:
        found = picture.text.get(draw_results.DIGEST)
    assert found == draw_results.digest(PICTURES[path]), "run `python -m research.draw_results`"


def test_the_picture_of_the_readme_shows_the_table():
    path = pathlib.Path(draw_results.DOCUMENT).parent / "readme.png"
    with Image.open(path) as picture:
        found = picture.text.get(draw_results.DIGEST)
    assert draw_readme.speed_table()
    assert found == draw_readme.digest_of_speeds(), "run `python -m research.draw_readme`"
