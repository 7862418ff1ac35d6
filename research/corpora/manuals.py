"""Paragraphs of the Debian Reference in two languages, aligned by their place in the document.

The chapters are XHTML with the same anchors in each language. What follows an anchor up to the
next one is a section. Two sections are aligned if their paragraphs and table cells are nested in
the same elements; then the first is a translation of the first, and so on.
"""

import collections
import os
import re
import xml.etree.ElementTree
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.errors import DataError

# Characters of the English text for one of the Chinese text.
CHARACTER_RATIOS = (1.0, 6.0)

_XHTML = "{http://www.w3.org/1999/xhtml}"
_BLOCKS = ("p", "td", "th")
_NAVIGATION = ("navheader", "navfooter", "toc")  # classes
_IDEOGRAPH = re.compile(r"[\u4e00-\u9fff]")


class Block(NamedTuple):
    """A paragraph or a table cell: the elements around it, and its text."""

    path: tuple[str, ...]
    text: str


def read_sections(path: str | os.PathLike) -> dict[str, list[Block]]:
    """Reads the sections of an XHTML file by their anchors.

    Raises:
        DataError: If the file is missing or not XML.
    """
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        raise DataError(f"{path} must be a chapter in XHTML. Received: {error}") from None
    sections = collections.defaultdict(list)
    anchor = ""

    def visit(element, above):
        nonlocal anchor
        tag = str(element.tag).removeprefix(_XHTML)
        if element.get("class") in _NAVIGATION:
            return
        anchor = element.get("id", anchor)
        path = (*above, tag)
        text = " ".join("".join(element.itertext()).split())
        if tag in _BLOCKS and text and not any(map(_is_block, element.iterfind(".//*"))):
            sections[anchor].append(Block(path, text))
        for child in element:
            visit(child, path)

    visit(root, ())
    return dict(sections)


def align_sections(
    sources: dict[str, list[Block]], targets: dict[str, list[Block]]
) -> tuple[list[tuple[str, str, str]], dict[str, int]]:
    """Pairs the blocks of an English chapter with those of the same chapter in Chinese.

    Dropped are sections of another structure, blocks that are not translated (commands, names)
    and pairs whose lengths do not fit `CHARACTER_RATIOS`.

    Returns:
        Triples (anchor, English, Chinese), and the number of dropped blocks for each reason.
    """
    pairs, dropped = [], collections.Counter()
    for anchor, blocks in sources.items():
        others = targets.get(anchor, [])
        if [block.path for block in blocks] != [block.path for block in others]:
            dropped["in sections of another structure"] += len(blocks)
            continue
        for (_, english), (_, chinese) in zip(blocks, others):
            low, high = CHARACTER_RATIOS
            if not _IDEOGRAPH.search(chinese):
                dropped["that are not translated"] += 1
            elif not low <= len(english) / len(chinese) <= high:
                dropped["whose lengths do not fit"] += 1
            else:
                pairs.append((anchor, english, chinese))
    return pairs, dict(dropped)


def without_repetitions(pairs: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Returns the first of the triples (group, source, target) with the same source text."""
    unique = {}
    for pair in pairs:
        unique.setdefault(pair[1], pair)
    return list(unique.values())


def _is_block(element):
    return str(element.tag).removeprefix(_XHTML) in _BLOCKS
