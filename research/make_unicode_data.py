"""Writes `unicode_data.txt`, the character properties that tokenization depends on.

To change the Unicode version, run it with a Python that has the new version:

    python -m research.make_unicode_data > bert_tf/text/unicode_data.txt

That file is part of the package because a tokenizer that used the Unicode version of Python, ICU or
RE2 would return other ids on another machine.
"""

import itertools
import string
import sys
import unicodedata
from collections.abc import Callable, Iterator

NUM_CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)


def is_control(char: str) -> bool:
    """Returns whether google-research/bert removes it (`_is_control`, NUL and U+FFFD)."""
    if char in "\t\n\r":
        return False
    return char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_space(char: str) -> bool:
    """Returns whether google-research/bert splits words at it: `_is_whitespace` or `str.split`."""
    return not is_control(char) and (char.isspace() or unicodedata.category(char) == "Zs")


def is_punctuation(char: str) -> bool:
    """Returns `_is_punctuation` of google-research/bert: category P and all ASCII symbols."""
    return char in string.punctuation or unicodedata.category(char).startswith("P")


def ends_sigma_context(char: str) -> bool:
    """Returns whether `str.lower` treats it as cased (and not ignorable) next to a sigma."""
    return (char + "\u03a3").lower().endswith("\u03c2")


def is_case_ignorable(char: str) -> bool:
    """Returns whether `str.lower` skips the character when it looks around a sigma."""
    return ("A" + char + "\u03a3").lower().endswith("\u03c2") and not ends_sigma_context(char)


def ranges(value_of: Callable[[str], object]) -> Iterator[tuple[int, int, object]]:
    """Yields `(first, last, value)` for every run of code points with the same true value."""

    def value_at(code_point: int) -> object:
        return code_point not in SURROGATES and value_of(chr(code_point))

    for value, run in itertools.groupby(range(NUM_CODE_POINTS), value_at):
        if value:
            code_points = list(run)
            yield code_points[0], code_points[-1], value


def main() -> None:
    print(f"# Unicode {unicodedata.unidata_version}")
    print("# Made by research/make_unicode_data.py; kind, first, last, values (hexadecimal)")
    predicates = {
        "control": is_control,
        "space": is_space,
        "punctuation": is_punctuation,
        "mark": lambda char: unicodedata.category(char) == "Mn",
        "cased": ends_sigma_context,
        "ignorable": is_case_ignorable,
        "combining": unicodedata.combining,
    }
    for kind, predicate in predicates.items():
        for first, last, value in ranges(predicate):
            suffix = "" if value is True else f"\t{value:X}"
            print(f"{kind}\t{first:X}\t{last:X}{suffix}")
    mappings = {"lower": str.lower, "nfd": lambda char: unicodedata.normalize("NFD", char)}
    for kind, mapping in mappings.items():
        for code_point in range(NUM_CODE_POINTS):
            # Hangul syllables always decompose in the same way; see unicode_tables.py.
            if code_point in SURROGATES or 0xAC00 <= code_point <= 0xD7A3:
                continue
            target = mapping(chr(code_point))
            if target != chr(code_point):
                values = " ".join(f"{ord(char):X}" for char in target)
                print(f"{kind}\t{code_point:X}\t{code_point:X}\t{values}")


if __name__ == "__main__":
    sys.exit(main())
