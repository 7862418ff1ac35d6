"""Reads ordered English text from a SWORD module: chapters of sentences, in reading order.

The Debian package sword-text-web contains the World English Bible, about 5 MB of running text in
the public domain. For each of its two parts (`ot`, `nt`), a zText module has a file of zlib blocks,
one per book (`.bzz`), and their index (`.bzs`: offset, compressed size, size). The third file,
which maps verses to blocks, is not needed to read the whole text.

Reference: the SWORD project's zText driver; OSIS, the markup of the text.
"""

import html
import os
import re
import struct
import zlib
from collections.abc import Iterator

from bert_tf.errors import DataError

PARTS = ("ot", "nt")
_BLOCK_ENTRY = struct.Struct("<III")
# Not part of the running text: footnotes (with variants and references) and headings.
_NOT_TEXT = re.compile(r"<(note|title)\b[^>]*>.*?</\1>", re.DOTALL)
_CHAPTER = re.compile(r"<chapter\b[^>]*\bsID=[^>]*>")
_TAG = re.compile(r"<[^>]*>")
_SPACE_BEFORE_MARK = re.compile(r"\s+([,.;:!?’”)\]])")
# A sentence ends at . ! or ? and the quotes and brackets after it, before a capital or a quote.
_SENTENCE_END = re.compile(r"(?<=[.!?])([’”)\]]*)\s+(?=[“‘(\[]*[A-Z0-9])")


def read_ordered_text(directory: str | os.PathLike) -> Iterator[list[str]]:
    """Yields the chapters of a SWORD zText module, each a list of sentences.

    The files `ot.bzs`, `ot.bzz`, `nt.bzs` and `nt.bzz` may be at any depth of the directory, which
    research/fetch_materials.py or an unpacked Debian package has. Footnotes and headings are
    dropped.

    Example:
        >>> chapters = list(read_ordered_text(".cache/materials/ordered_text"))
        >>> chapters[1][0]
        'In the beginning, God created the heavens and the earth.'
    """
    found = _find_module(directory)
    markup = " ".join(block for part in PARTS for block in _blocks(os.path.join(found, part)))
    for chapter in _CHAPTER.split(_NOT_TEXT.sub(" ", markup)):
        sentences = split_sentences(
            _SPACE_BEFORE_MARK.sub(r"\1", html.unescape(_TAG.sub("", _spaced(chapter))))
        )
        if sentences:
            yield sentences


def split_sentences(text: str) -> list[str]:
    """Splits running English text at full stops, question marks and exclamation marks.

    Example:
        >>> split_sentences("He said, “Go!” They went. Why?")
        ['He said, “Go!”', 'They went.', 'Why?']
    """
    text = _SENTENCE_END.sub(r"\1\n", " ".join(text.split()))
    return [sentence for sentence in text.split("\n") if sentence]


def _spaced(markup: str) -> str:
    """Inserts a space where a line, a paragraph or an item begins or ends."""
    return re.sub(r"<(?=/?(?:div|l|lg|lb|item|list|chapter|milestone|speaker)\b)", " <", markup)


def _find_module(directory: str | os.PathLike) -> str:
    for folder, _, files in os.walk(directory):
        if "ot.bzz" in files:
            return folder
    raise DataError(
        f"{os.fspath(directory)} must have a SWORD zText module (ot.bzs, ot.bzz, nt.bzs and "
        "nt.bzz). Received: no ot.bzz. Download it with research/fetch_materials.py "
        "--materials=ordered_text, or unpack sword-text-web with dpkg-deb -x."
    )


def _blocks(stem: str) -> Iterator[str]:
    try:
        with open(f"{stem}.bzs", "rb") as index, open(f"{stem}.bzz", "rb") as packed:
            for offset, packed_size, size in _BLOCK_ENTRY.iter_unpack(index.read()):
                packed.seek(offset)
                content = zlib.decompress(packed.read(packed_size))
                if len(content) != size:
                    raise DataError(
                        f"{stem}.bzz must have a block of {size} bytes at {offset}. "
                        f"Received: {len(content)} bytes. Download the module again."
                    )
                yield content.decode("utf-8")
    except (OSError, struct.error, zlib.error, UnicodeDecodeError) as error:
        raise DataError(
            f"{stem}.bzs and .bzz must be those of a SWORD zText module. Received: {error}. "
            "Download it again."
        ) from error
