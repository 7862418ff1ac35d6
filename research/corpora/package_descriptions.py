"""Descriptions of Debian packages with their one-line synopses, a summarization corpus.

`research/fetch_materials.py --materials=package_descriptions` writes two files in Debian's control
format: `available` (what `apt-cache dumpavail` prints: packages and their source packages) and
`descriptions` (the English descriptions).

Reference: Debian Policy Manual, section 5.6.13, "Description".
"""

import collections
import os
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_tf.errors import DataError
from bert_tf.inputs.tables.tsv import read_lines

FEWEST_WORDS = 10  # of a description that is long enough to be summarized

_NOT_DESCRIBED = re.compile(r"\b(transitional|dummy|meta-?package)\b", re.IGNORECASE)
_VERSION = re.compile(r"[-.]?\d+(\.\d+)*")


class Description(NamedTuple):
    """A package, the source package it is built from, its description and the synopsis."""

    package: str
    source_package: str
    document: str
    summary: str


def read_descriptions(directory: str | os.PathLike) -> Iterator[Description]:
    """Yields the packages of the files `available` and `descriptions`, in their order.

    Raises:
        DataError: If a file is missing or has no packages.
    """
    available = os.path.join(directory, "available")
    sources = {}
    for fields in _paragraphs(available):
        package = fields.get("Package", [""])[0]
        sources[package] = fields.get("Source", [package])[0].split(" ")[0]  # "gcc-12 (12.2.0)"
    if not sources:
        raise DataError(f"{available} must have packages. Received: none")
    for fields in _paragraphs(os.path.join(directory, "descriptions")):
        package = fields.get("Package", [""])[0]
        if package in sources and "Description-en" in fields:
            summary, *lines = fields["Description-en"]
            words = " ".join(line for line in lines if line != ".").split()
            yield Description(package, sources[package], " ".join(words), " ".join(summary.split()))


def usable(descriptions: Iterable[Description]) -> tuple[list[Description], dict[str, int]]:
    """Drops repeated descriptions and those that say little.

    Returns:
        The others, and the number of dropped packages for each reason.
    """
    kept, dropped = {}, collections.Counter()
    for description in descriptions:
        if len(description.document.split()) < FEWEST_WORDS:
            dropped[f"with less than {FEWEST_WORDS} words"] += 1
        elif _NOT_DESCRIBED.search(description.summary):
            dropped["that only depend on others"] += 1
        elif description.document in kept:
            dropped["with the description of another one"] += 1
        else:
            kept[description.document] = description
    return list(kept.values()), dict(dropped)


def family(source_package: str) -> str:
    """Returns the name of a source package without version numbers.

    Example:
        >>> family("llvm-toolchain-14"), family("python3.11"), family("gcc-12")
        ('llvm-toolchain', 'python', 'gcc')
    """
    return _VERSION.sub("", source_package) or source_package


def _paragraphs(path):
    """Yields the paragraphs of a control file: the lines of each field by its name."""
    fields, lines = {}, []
    for number, line in read_lines(path):
        if line.startswith((" ", "\t")):
            lines.append(line.strip())
        elif line:
            name, colon, value = line.partition(":")
            if not colon:
                raise DataError(
                    f"{path}, line {number} must be a field, Name: value. Received: {line[:60]!r}"
                )
            fields[name] = lines = [value.strip()]
        elif fields:
            yield fields
            fields, lines = {}, []
    if fields:
        yield fields
