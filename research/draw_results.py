"""Draws the tables of docs/results.md that a picture follows: `python -m research.draw_results`.

A picture shows the table before it, and has the digest of the table's lines in its metadata, by
which a test finds pictures that are older than their tables.
"""

import hashlib
import pathlib
import re

from .table_pictures import draw_table, parse_table

DOCUMENT = pathlib.Path(__file__).resolve().parent.parent / "docs" / "results.md"
DIGEST = "digest_of_the_table"  # in a picture's metadata
_PICTURE = re.compile(r"!\[.*\]\((.+)\)")


def tables_with_pictures(text: str) -> dict[str, list[str]]:
    """Returns the lines of the table that each picture of a document shows, by its path."""
    found: dict[str, list[str]] = {}
    table: list[str] = []
    before = ""
    for line in text.splitlines():
        if line.startswith("|"):
            table = [*table, line] if before.startswith("|") else [line]
        elif picture := _PICTURE.match(line):
            found[picture[1]] = table
        before = line
    return found


def digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def main() -> None:
    for path, lines in tables_with_pictures(DOCUMENT.read_text(encoding="utf-8")).items():
        target = DOCUMENT.parent / path
        target.parent.mkdir(exist_ok=True)
        draw_table(parse_table(lines), str(target), metadata={DIGEST: digest(lines)})


if __name__ == "__main__":
    main()
