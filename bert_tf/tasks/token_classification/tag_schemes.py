"""Tags of words and the spans they stand for: IOB1, IOB2, BIOES.

A span tag is `O` or a prefix and a label, `B-PER`; segmentation has one label, which may be left
out (`B`). One reader serves all schemes, because each letter says the same wherever it occurs:

- IOB2 writes `B` on the first word of a span, `I` on the others.
- IOB1 writes `B` only where a span of the same label ends right before, else `I`.
- BIOES writes `E` on the last word of a span and `S` on a span of one word.

`M`, `L` and `U`, of the spellings BMES and BILOU, are read as `I`, `E` and `S`.

Reference: Ramshaw and Marcus 1995 (IOB1); Tjong Kim Sang and Veenstra 1999 (IOB2); the rules for
tags that break their scheme are those of conlleval.pl (CoNLL 2000), which seqeval follows.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_tf.errors import DataError, UserError

SCHEMES = ("IOB1", "IOB2", "BIOES")
OUTSIDE = "O"

_SPELLINGS = {"M": "I", "L": "E", "U": "S"}
_PREFIXES = frozenset("BIES") | frozenset(_SPELLINGS)


class Span(NamedTuple):
    """The words `[start, end)` of a sentence, and what they are.

    Example:
        >>> Span(0, 2, "PER")
        Span(start=0, end=2, label='PER')
    """

    start: int
    end: int
    label: str


def are_span_tags(tags: Iterable[str]) -> bool:
    """Whether all of the tags are span tags, and not names of their own, as parts of speech are."""
    return all(tag == OUTSIDE or tag_parts(tag) is not None for tag in tags)


def spans_of_tags(tags: Sequence[str]) -> list[Span]:
    """The spans that a sentence's tags stand for, in whichever scheme they are.

    Tags that break their scheme are read as conlleval.pl does: what continues nothing begins.

    Args:
        tags: A tag a word.

    Returns:
        The spans in the order of the words; they never overlap.

    Raises:
        DataError: If a tag is not a span tag.

    Example:
        >>> spans_of_tags(["B-PER", "I-PER", "O", "S-LOC"])
        [Span(start=0, end=2, label='PER'), Span(start=3, end=4, label='LOC')]
    """
    spans = []
    start, label = None, None  # of the span that is open
    for place, tag in enumerate(tags):
        parts = None if tag == OUTSIDE else tag_parts(tag)
        if parts is None and tag != OUTSIDE:
            raise DataError(
                f"Expected span tags: {OUTSIDE!r}, or one of {''.join(sorted(_PREFIXES))} and a "
                f"label, as in 'B-PER'. Received: {tag!r} at word {place}. Tags of single words, "
                "as parts of speech, have no spans."
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
    """The tags of a sentence with these spans.

    Args:
        spans: The spans, in any order.
        length: Number of words.
        scheme: One of `SCHEMES`.

    Returns:
        A tag a word.

    Raises:
        UserError: If spans overlap or leave the sentence, or the scheme is unknown.

    Example:
        >>> tags_of_spans([Span(0, 2, "PER")], length=3)
        ['B-PER', 'I-PER', 'O']
    """
    if scheme not in SCHEMES:
        raise UserError(f"`scheme` must be one of {SCHEMES}. Received: scheme={scheme!r}")
    tags = [OUTSIDE] * length
    before = Span(0, 0, None)
    for span in sorted(spans):
        if not before.end <= span.start < span.end <= length:
            raise UserError(
                f"Spans must lie in the {length} words and not overlap. Received: {span} after "
                f"{before}"
            )
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
    """A sentence's tags in another scheme; see `spans_of_tags` for what is read.

    Example:
        >>> convert_tags(["I-PER", "I-PER", "B-PER"], "BIOES")
        ['B-PER', 'E-PER', 'S-PER']
    """
    return tags_of_spans(spans_of_tags(tags), len(tags), scheme)


def scheme_labels(labels: Iterable[str], scheme: str) -> list[str]:
    """All tags that spans of these labels can have in a scheme: `O` first, then label by label."""
    if scheme not in SCHEMES:
        raise UserError(f"`scheme` must be one of {SCHEMES}. Received: scheme={scheme!r}")
    letters = "BIES" if scheme == "BIOES" else "BI"
    names = (f"{letter}-{label}" if label else letter for label in labels for letter in letters)
    return [OUTSIDE, *names]


def tag_parts(tag: str) -> tuple[str, str] | None:
    """Prefix, as BIOES spells it, and label of a span tag; None if it is none, as `O`."""
    prefix, dash, label = tag.partition("-")
    if prefix not in _PREFIXES or (dash and not label):
        return None
    return _SPELLINGS.get(prefix, prefix), label
