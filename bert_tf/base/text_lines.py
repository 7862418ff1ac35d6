"""Lines of text files, read as bytes from any part of a file and decoded one by one."""

import dataclasses
from collections.abc import Callable, Iterator

from bert_tf.base.regular_files import open_regular
from bert_tf.errors import DataError

UTF8_BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class FileSpan:
    """The lines in the bytes from `start` to `end` of a file."""

    path: str
    start: int
    end: int


def read_raw_lines(
    path: str, start: int = 0, end: int | None = None, open_file: Callable = open_regular
) -> Iterator[bytes]:
    """Yields the lines in the bytes from `start` to `end` of a file, with their line ends.

    Args:
        path: The file.
        start: Where a line begins.
        end: The line that reaches this byte is the last one. Default: the end of the file.
        open_file: `open_regular`, or a function that opens remote files too.
    """
    with open_file(path, "rb") as file:
        file.seek(start)
        for line in file:
            yield line
            start += len(line)
            if end is not None and start >= end:
                return


def decode_line(line: bytes, path: str, number: int | str, errors: str) -> str:
    """Decodes a line of a text file; `errors` is "strict" or "replace".

    Args:
        line: The line.
        path, number: The file, and the line's number or place in it, for the error.
        errors: "strict" or "replace".

    Raises:
        DataError: If `errors` is "strict" and the line is binary or not UTF-8.
    """
    if errors == "replace":
        return line.decode("utf-8", "ignore")
    if b"\0" in line:
        raise DataError(
            f"{path}, line {number} must be text. Received: a zero byte, as in binary files or "
            "UTF-16. Remove the file or convert it, or pass --encoding_errors=replace."
        )
    try:
        return line.removeprefix(UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number} must be UTF-8. Received: byte 0x{line[error.start]:02x} at "
            f"position {error.start}. Convert the file, for example with iconv, or pass "
            "--encoding_errors=replace, which drops such bytes."
        ) from None
