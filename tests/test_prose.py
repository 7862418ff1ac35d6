"""Docstrings, comments and messages are plain sentences: each says who does what.

A docstring, an entry of its `Args` and a comment do not begin with a word that leaves out the
subject. Words that mean something else in the documentation of other libraries are refused.
"""

import ast
import io
import re
import tokenize

import pytest

from tests.conftest import REPOSITORY

ROOTS = ("bert_tf", "tools", "benchmarks", "research")
# "Of the first of `dims`." is "Returns the hits for the largest dimension."
ELLIPSIS = re.compile(r"(Of|By|As|That|Those|Then|Besides?|In which|After which)\s")
ENTRY = re.compile(r"^ +[\w*, ]+: (Of|By|As|That|Those) ", re.MULTILINE)
# What to write instead.
WORDS = {
    "besides": "in addition to, apart from, other than",
    "beside": "next to, compared with",
    "likeliest": "most probable",
    "mended": "fixed",
    "furthest": "farthest",
    "twin": "reference implementation",
    "polite": "graceful",
    "is told": "is reported",
    "are told": "are reported",
    "be told": "get, be passed",
    "tell apart": "distinguish",
    "tells apart": "distinguishes",
    "told apart": "distinguished",
    "head at random": "head with random weights",
    "initialized at random": "initialized with random weights",
}
UNWANTED = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def strings(tree: ast.Module):
    """Yields each string: its line, its text, and whether it is a docstring."""
    docstrings = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False) is not None:
                docstrings.add(node.body[0].value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value, node in docstrings


def comments(source: str):
    """Yields each comment: its line and its text; lines below each other are one comment."""
    lines, last = [], 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        number, is_alone = token.start[0], token.line.lstrip().startswith("#")
        if lines and not (is_alone and number == last + 1):
            yield last - len(lines) + 1, " ".join(lines)
            lines = []
        lines.append(token.string.lstrip("#! "))
        last = number
        if not is_alone:
            yield number, lines.pop()
    if lines:
        yield last - len(lines) + 1, " ".join(lines)


def found_in(source: str) -> list[str]:
    """Returns what is wrong in the prose of a module, with its lines."""
    found = []
    texts = [*strings(ast.parse(source)), *((*comment, True) for comment in comments(source))]
    for line, text, is_prose in texts:
        if is_prose and (match := ELLIPSIS.match(text)):
            found.append(f"line {line} begins with {match[1]!r}: who does what?")
        if is_prose:
            for match in ENTRY.finditer(text):
                entry = line + text[: match.start()].count("\n")
                found.append(f"line {entry} begins with {match[1]!r}: `See` or a noun instead")
        for match in UNWANTED.finditer(text):
            place = line + text[: match.start()].count("\n")
            found.append(f"line {place} has {match[1]!r}: {WORDS[match[1].lower()]} instead")
    return found


@pytest.mark.parametrize("root", ROOTS)
def test_prose_is_plain(root):
    files = (REPOSITORY / root).rglob("*.py")  # bert_tf/tools is a link, which is not followed
    wrong = {
        path.relative_to(REPOSITORY).as_posix(): found
        for path in sorted(files)
        if (found := found_in(path.read_text(encoding="utf-8")))
    }
    assert not wrong


@pytest.mark.parametrize(
    "source,expected",
    [
        ('"""Of the first of `dims`."""', "line 1 begins with 'Of'"),
        ('def f(x):\n    """Returns x.\n\n    Args:\n        x: By id.\n    """', "line 5 begins"),
        ("x = 1\n# As in Keras.\n# It is one.\n", "line 2 begins with 'As'"),
        ("x = 1  # That of the stage.\n", "line 1 begins with 'That'"),
        ('raise ValueError("No head besides it.")', "line 1 has 'besides': in addition to"),
        ("# It lies\n# besides it.\n", "line 1 has 'besides'"),
    ],
)
def test_unclear_prose_is_found(source, expected):
    (found,) = found_in(source)
    assert found.startswith(expected)


@pytest.mark.parametrize(
    "source", ['"""Returns the one of x."""', "x = 1  # of each layer\n", "# See `f`.\nx = 'Of'\n"]
)
def test_plain_prose_is_not(source):
    assert not found_in(source)
