"""Tags to spans and back, in every scheme."""

import random

import pytest

from bert_tf.errors import DataError, UserError
from bert_tf.tasks.token_classification.tag_schemes import (
    SCHEMES,
    Span,
    are_span_tags,
    convert_tags,
    scheme_labels,
    spans_of_tags,
    tags_of_spans,
)


def random_spans(generator, length):
    spans, place = [], 0
    while place < length:
        place += generator.randrange(3) and generator.randrange(4)
        end = place + generator.randint(1, 4)
        if end <= length:
            spans.append(Span(place, end, generator.choice(["PER", "LOC", "B-SIDE", ""])))
        place = end
    return spans


@pytest.mark.parametrize("scheme", SCHEMES)
def test_random_spans_come_back(scheme):
    generator = random.Random(scheme)
    for _ in range(500):
        length = generator.randint(0, 20)
        spans = random_spans(generator, length)
        tags = tags_of_spans(spans, length, scheme)
        assert len(tags) == length and are_span_tags(tags)
        assert set(tags) <= set(scheme_labels(["PER", "LOC", "B-SIDE", ""], scheme))
        assert spans_of_tags(tags) == spans
        for other in SCHEMES:
            assert convert_tags(convert_tags(tags, other), scheme) == tags


def test_written_as_the_schemes_say():
    spans = [Span(0, 2, "A"), Span(2, 3, "A"), Span(4, 5, "B")]
    assert tags_of_spans(spans, 5, "IOB1") == ["I-A", "I-A", "B-A", "O", "I-B"]
    assert tags_of_spans(spans, 5, "IOB2") == ["B-A", "I-A", "B-A", "O", "B-B"]
    assert tags_of_spans(spans, 5, "BIOES") == ["B-A", "E-A", "S-A", "O", "S-B"]


def test_reads_other_spellings_and_broken_tags_as_conlleval():
    assert spans_of_tags(["B-A", "M-A", "L-A", "U-B"]) == [Span(0, 3, "A"), Span(3, 4, "B")]
    assert spans_of_tags(["B", "E", "S"]) == [Span(0, 2, ""), Span(2, 3, "")]
    # What continues nothing begins.
    assert spans_of_tags(["O", "I-A", "I-B", "E-B", "E-B"]) == [
        Span(1, 2, "A"),
        Span(2, 4, "B"),
        Span(4, 5, "B"),
    ]


def test_equals_seqeval_on_random_tags():
    entities = pytest.importorskip(
        "seqeval.metrics.sequence_labeling", reason="needs seqeval"
    ).get_entities
    generator = random.Random(3)
    tags = ["O", *(f"{letter}-{label}" for letter in "BIES" for label in ("X", "Y"))]
    for _ in range(500):
        sentence = generator.choices(tags, k=12)
        expected = [(start, end + 1, label) for label, start, end in entities(sentence)]
        assert [tuple(span) for span in spans_of_tags(sentence)] == expected


def test_mistakes():
    with pytest.raises(DataError, match="Received: 'NN' at word 1"):
        spans_of_tags(["O", "NN"])
    with pytest.raises(DataError, match="'B-'"):
        spans_of_tags(["B-"])
    with pytest.raises(UserError, match="not overlap"):
        tags_of_spans([Span(0, 2, "A"), Span(1, 3, "A")], 4)
    with pytest.raises(UserError, match="not overlap"):
        tags_of_spans([Span(0, 5, "A")], 4)
    with pytest.raises(UserError, match="scheme"):
        tags_of_spans([], 1, "IOB3")
    assert not are_span_tags(["O", "n"])
