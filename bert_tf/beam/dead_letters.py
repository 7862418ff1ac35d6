"""Dead letters: the elements that a pipeline could not process, with the reason.

They are JSON lines, one for each element:

    {"source": "text/a.txt", "position": 17, "element": "what it was", "error": "why"}

`source` is the path of the file; `position` is where the element begins in it, as each pipeline
documents (null if it is the whole file); `element` is cut to `ELEMENT_CHARACTERS`.
"""

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bert_tf.beam.file_access import read_segment
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import DataError

ELEMENT_CHARACTERS = 1000


class DeadLetter(NamedTuple):
    """An element that could not be processed.

    Args:
        source: The path of the file that it is from.
        position: Where it begins in the file, or None for the whole file.
        element: What it was, or as much of it as can be shown as text.
        error: Why it could not be processed.

    Example:
        >>> from bert_tf.beam.dead_letters import DeadLetter
        >>> DeadLetter("a.txt", 17, "x" * 2000, "it is too long").to_json()[:60]
        '{"source": "a.txt", "position": 17, "element": "xxxxxxxxxxxx'
    """

    source: str
    position: int | None
    element: str
    error: str

    @classmethod
    def of(
        cls, source: str, position: int | None, element: str | bytes, error: object
    ) -> "DeadLetter":
        """Returns a dead letter of text or bytes; bytes that are not UTF-8 are shown as `\\xff`."""
        shown = element[: 4 * ELEMENT_CHARACTERS]  # a character has at most 4 bytes
        if isinstance(shown, bytes):
            shown = shown.decode("utf-8", "backslashreplace")
        return cls(source, position, shown[:ELEMENT_CHARACTERS], str(error))

    def to_json(self) -> str:
        """Returns the dead letter as a line of JSON, without its line end.

        Surrogates, as in names of files that are not UTF-8, are escaped: UTF-8 does not have them.
        """
        shown = self._replace(element=self.element[:ELEMENT_CHARACTERS])
        line = json.dumps(shown._asdict(), ensure_ascii=False)
        return line.encode("utf-8", "backslashreplace").decode("utf-8")


def letters_of_blocks(
    workspace: Workspace, names: Iterable[str], segment: int, refuse: bool
) -> Iterator[DeadLetter]:
    """Returns the dead letters that the workers wrote, block by block of the files.

    Each block of a file that cannot be read has a letter of the whole file; the first is returned.

    Args:
        workspace: Where they are.
        names: The names of the blocks' work, in order.
        segment: The segment of a block's file that has its letters, as JSON.
        refuse: Whether there must be none.

    Raises:
        DataError: With `refuse`, the error of the first dead letter.
    """
    segments = (read_segment(workspace.result(name), segment) for name in names)
    letters = _without_repetitions(
        DeadLetter(*item) for part in segments for item in json.loads(part)
    )
    if refuse:
        for source, _, _, error in letters:
            raise DataError(error if source in error else f"{source}: {error}")
    return letters


def _without_repetitions(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    whole = None
    for letter in letters:
        if letter.position is None and letter.source == whole:
            continue
        whole = letter.source if letter.position is None else None
        yield letter
