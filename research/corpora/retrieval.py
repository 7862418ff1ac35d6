"""Data sets for retrieval, made of published texts: what fits a query is known from their order.

`manuals`: the headings of the Debian Reference and the Debian Administrator's Handbook find the
paragraphs of their sections. `questions`: a question finds others that ask for the same kind of
thing. `film_reviews`: a review finds others of the same film. The texts to train on are those of
other sections, of other questions, of other films.
"""

import collections
import glob
import os
import random
import re
import xml.etree.ElementTree
from collections.abc import Iterator
from typing import NamedTuple

from bert_tf.errors import DataError
from bert_tf.inputs.tables.tsv import read_lines

from . import film_reviews, labelled_corpora, split_by_group

FEWEST_CHARACTERS = 60  # of a paragraph
MANUAL_SHARES = (0.6, 0.7)  # of the headings, where train and dev end
QUERIES_PER_FILM = 5
SPLITS = ("train", "dev", "test")

_NUMBER = re.compile(r"^(Chapter )?(\d+|[A-Z])(\.\d+)*\.?\s+")
_HEADING = re.compile(r"h[1-6]")
# Elements that are no running text, by their class.
_SKIPPED = ("navheader", "navfooter", "toc", "docnav top", "docnav", "indexterm")


class RetrievalData(NamedTuple):
    """The documents, queries and grades of a data set, and the pairs to train on.

    Attributes:
        documents: Texts by their ids.
        queries: Texts by their ids, of all splits.
        relevant: The documents that fit each query, by split and query.
        pairs: A text and one that fits it, of the split train.
    """

    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, list[str]]]
    pairs: list[tuple[str, str]]


def manuals(directory: str | os.PathLike, seed: int = 0) -> RetrievalData:
    """Returns headings of manuals and the paragraphs below them, without headings that recur."""
    sections = collections.defaultdict(list)
    files = [
        path
        for material in ("debian_reference_en", "debian_handbook_en")
        for path in sorted(glob.glob(os.path.join(directory, material, "*.html")))
    ]
    if not files:
        raise DataError(
            f"{directory} must have the manuals. Received: no .html file. Run `python "
            "-m research.fetch_materials --materials=debian_reference_en,debian_handbook_en`."
        )
    for path in files:
        for heading, paragraphs in read_headings(path):
            if paragraphs:
                sections[heading].append(paragraphs)
    documents, queries, found = {}, {}, {}
    for number, (heading, places) in enumerate(sections.items()):
        texts = [text for paragraphs in places for text in paragraphs]
        ids = [f"p{len(documents) + place}" for place in range(len(texts))]
        documents |= zip(ids, texts)
        if len(places) == 1 and len(heading.split()) > 1:
            queries[f"h{number}"], found[f"h{number}"] = heading, ids
    order = list(found)
    random.Random(seed).shuffle(order)
    ends = [round(share * len(order)) for share in MANUAL_SHARES]
    parts = zip(SPLITS, [0, *ends], [*ends, None])
    relevant = {split: {q: found[q] for q in order[start:end]} for split, start, end in parts}
    pairs = [(queries[q], documents[d]) for q, ids in relevant["train"].items() for d in ids]
    return RetrievalData(documents, queries, relevant, pairs)


def read_headings(path: str | os.PathLike) -> Iterator[tuple[str, list[str]]]:
    """Yields the headings of an XHTML file without numbers, and the paragraphs up to the next.

    Raises:
        DataError: If the file is not XML.
    """
    try:
        root = xml.etree.ElementTree.parse(path).getroot()
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        raise DataError(f"{path} must be a chapter in XHTML. Received: {error}") from None
    heading, paragraphs = "", []
    for kind, text in _blocks(root):
        if kind == "heading":
            if heading:
                yield heading, paragraphs
            heading, paragraphs = _NUMBER.sub("", text), []
        elif len(text) >= FEWEST_CHARACTERS:
            paragraphs.append(text)
    if heading:
        yield heading, paragraphs


def _blocks(element):
    tag = str(element.tag).rpartition("}")[2]
    if element.get("class") in _SKIPPED:
        return
    text = " ".join("".join(element.itertext()).split())
    if _HEADING.fullmatch(tag) and element.get("class") == "title":
        yield "heading", text
    elif (tag == "p" and element.get("id") != "title") or element.get("class") == "para":
        yield "paragraph", text
    else:
        for child in element:
            yield from _blocks(child)


def questions(directory: str | os.PathLike, seed: int = 0) -> RetrievalData:
    """Makes questions of held-out splits search those of the split train."""
    path = os.path.join(directory, "sms_and_questions", "question_labels.txt")
    rows = [line.partition(" ") for _, line in read_lines(path) if line.strip()]
    examples = labelled_corpora.distinct((text, label) for label, _, text in rows)
    splits = labelled_corpora.random_splits(examples, seed)
    documents = {f"d{number}": text for number, (text, _) in enumerate(splits["train"])}
    of_label = collections.defaultdict(list)
    for document, (_, label) in zip(documents, splits["train"]):
        of_label[label].append(document)
    queries, relevant = {}, {"train": {}}
    for split in ("dev", "test"):
        relevant[split] = {}
        for number, (text, label) in enumerate(splits[split]):
            if of_label[label]:
                queries[f"{split}{number}"] = text
                relevant[split][f"{split}{number}"] = of_label[label]
    return RetrievalData(documents, queries, relevant, _partners(splits["train"], seed))


def film_reviews_of(directory: str | os.PathLike, seed: int = 0) -> RetrievalData:
    """Makes some reviews of held-out films search the other reviews of these films."""
    path = os.path.join(directory, "film_reviews", "rotten_tomatoes_corpus_full.csv.bz2")
    reviews = [(text, film) for text, _, film in film_reviews.read_film_reviews(path)]
    splits = split_by_group(reviews, [film for _, film in reviews], seed)
    documents, queries, relevant = {}, {}, {"train": {}}
    for split in ("dev", "test"):
        of_film, asked = collections.defaultdict(list), collections.defaultdict(list)
        for number, (text, film) in enumerate(splits[split]):
            id_ = f"{split}{number}"
            if len(asked[film]) < QUERIES_PER_FILM:
                asked[film].append(id_)
                queries[id_] = text
            else:
                of_film[film].append(id_)
                documents[id_] = text
        relevant[split] = {id_: ids for film, ids in of_film.items() for id_ in asked[film]}
    return RetrievalData(documents, queries, relevant, _partners(splits["train"], seed))


def _partners(examples, seed):
    """Returns pairs of different texts with the same label: each text once as the first."""
    generator, groups = random.Random(seed), collections.defaultdict(list)
    for text, label in examples:
        groups[label].append(text)
    pairs = []
    for texts in groups.values():
        if len(texts) > 1:
            others = [*texts[1:], texts[0]]
            pairs += zip(texts, others)
    generator.shuffle(pairs)
    return pairs


DATA_SETS = {"manuals": manuals, "questions": questions, "film_reviews": film_reviews_of}
