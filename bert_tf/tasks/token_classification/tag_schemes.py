"""The tag schemes IOB1, IOB2 and BIOES, and the spans that tags mean.

A span tag is `O`, or a prefix and a label such as `B-PER`. Segmentation has one label, which may be
missing (`B`). The same function reads all schemes, because a letter has the same meaning in all:

- IOB2 has `B` for the first word of a span and `I` for the others.
- IOB1 has `B` only after a span with the same label, otherwise `I`.
- BIOES also has `E` for the last word of a span and `S` for a span of one word.

`M`, `L` and `U` of BMES and BILOU are read as `I`, `E` and `S`.

Reference: Ramshaw and Marcus 1995 (IOB1); Tjong Kim Sang and Veenstra 1999 (IOB2); conlleval.pl of
CoNLL 2000 and seqeval for invalid sequences of tags.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_tf.errors import DataError, require_one_of, user_error

SCHEMES = ("IOB1", "IOB2", "BIOES")
OUTSIDE = "O"
# The prefixes of each scheme in seqeval's strict mode, and seqeval's name for it.
STRICT_SCHEMES = {
    "IOB1": ("IOB", "IOB1"),
    "IOB2": ("IOB", "IOB2"),
    "IOE1": ("IOE", "IOE1"),
    "IOE2": ("IOE", "IOE2"),
    "BIOES": ("BIOES", "IOBES"),
    "BILOU": ("BILOU", "BILOU"),
    "BMES": ("BMESO", "IOBES"),  # after M is replaced by I
}

_SPELLINGS = {"M": "I", "L": "E", "U": "S"}
_PREFIXES = frozenset("BIES") | frozenset(_SPELLINGS)


class Span(NamedTuple):
    """The words `[start, end)` of a sentence and their label.

    Example:
        >>> Span(0, 2, "PER")
        Span(start=0, end=2, label='PER')
    """

    start: int
    end: int
    label: str


def are_span_tags(tags: Iterable[str]) -> bool:
    """Returns whether all tags are span tags, and not for example parts of speech."""
    return all(tag == OUTSIDE or tag_parts(tag) is not None for tag in tags)


def spans_of_tags(tags: Sequence[str]) -> list[Span]:
    """Returns the spans of a sentence's tags, in any scheme, in the order of the words.

    A tag that continues no span begins one, as in conlleval.pl.

    Args:
        tags: One tag per word.

    Raises:
        DataError: If a tag is not a span tag.

    Example:
        >>> spans_of_tags(["B-PER", "I-PER", "O", "S-LOC"])
        [Span(start=0, end=2, label='PER'), Span(start=3, end=4, label='LOC')]
    """
    spans = []
    start, label = None, None  # of the current span
    for place, tag in enumerate(tags):
        parts = None if tag == OUTSIDE else tag_parts(tag)
        if parts is None and tag != OUTSIDE:
            raise DataError(
                f"`tags` must be {OUTSIDE!r}, or one of {''.join(sorted(_PREFIXES))} and a label, "
                f"as in 'B-PER'. Received: {tag!r} at word {place}. Parts of speech and other tags "
                "of single words have no spans."
            )
        prefix, name = parts or (OUTSIDE, None)
        if start is not None and not (prefix in "IE" and name == label):
            spans.append(Span(start, place, label))
            start = None
        if start is None and prefix != OUTSIDE:
            start, label = place, name
        if prefix in "ES":
            spans.append(Span(start, place + 1, label))
            start = None
    if start is not None:
        spans.append(Span(start, len(tags), label))
    return spans


def tags_of_spans(spans: Iterable[Span], length: int, scheme: str = "IOB2") -> list[str]:
    """Returns the tags of a sentence, one per word.

    Args:
        spans: The spans, in any order.
        length: The number of words.
        scheme: One of `SCHEMES`.

    Raises:
        UserError: If spans overlap or are not in the sentence, or if the scheme is unknown.

    Example:
        >>> tags_of_spans([Span(0, 2, "PER")], length=3)
        ['B-PER', 'I-PER', 'O']
    """
    require_one_of("scheme", scheme, SCHEMES)
    tags = [OUTSIDE] * length
    before = Span(0, 0, None)
    for span in sorted(spans):
        if not before.end <= span.start < span.end <= length:
            expected = f"be in the {length} words and not overlap"
            raise user_error("`spans`", expected, f"{span} after {before}")
        letters = ["I"] * (span.end - span.start)
        touches = before.end == span.start and before.label == span.label
        if scheme != "IOB1" or touches:
            letters[0] = "B"
        if scheme == "BIOES":
            letters[-1] = "E" if len(letters) > 1 else "S"
        suffix = f"-{span.label}" if span.label else ""
        tags[span.start : span.end] = [letter + suffix for letter in letters]
        before = span
    return tags


def convert_tags(tags: Sequence[str], scheme: str) -> list[str]:
    """Converts the tags of a sentence to another scheme.

    Raises:
        DataError: If a tag is not a span tag.
        UserError: If the scheme is unknown.

    Example:
        >>> convert_tags(["I-PER", "I-PER", "B-PER"], "BIOES")
        ['B-PER', 'E-PER', 'S-PER']
    """
    return tags_of_spans(spans_of_tags(tags), len(tags), scheme)


def scheme_labels(labels: Iterable[str], scheme: str) -> list[str]:
    """Returns all tags for spans with these labels: `O`, then the tags of each label."""
    require_one_of("scheme", scheme, SCHEMES)
    letters = "BIES" if scheme == "BIOES" else "BI"
    names = (f"{letter}-{label}" if label else letter for label in labels for letter in letters)
    return [OUTSIDE, *names]


def tag_parts(tag: str) -> tuple[str, str] | None:
    """Returns the prefix, as in BIOES, and the label of a span tag; None for other tags and `O`."""
    prefix, dash, label = tag.partition("-")
    if prefix not in _PREFIXES or (dash and not label):
        return None
    return _SPELLINGS.get(prefix, prefix), label
