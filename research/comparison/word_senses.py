"""Sentences in which an ambiguous word has a known sense, and how well vectors tell senses apart.

word_senses.json names sentences of the corpora by the first eight digits of their SHA-256, for each
word and sense. The senses were assigned by reading the sentences; unclear ones were left out.
"""

import dataclasses
import hashlib
import itertools
import json
import os
import pathlib
from collections.abc import Mapping

import numpy as np

from bert_tf.errors import DataError

from .data_sets import DATA_SETS, ENGLISH, directory_of

_LABELS = pathlib.Path(__file__).with_suffix(".json")
_SPLITS = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """A sentence, the sense that the word has in it, and the corpus that it is of."""

    text: str
    sense: str
    corpus: str


def read_sentences(work_dir: str) -> dict[str, list[Sentence]]:
    """Returns the sentences of each word from the data that compare_encoders.py prepared."""
    with open(_LABELS, encoding="utf-8") as file:
        labels = json.load(file)
    of_hash = {
        name: (word, sense)
        for word, senses in labels.items()
        for sense, names in senses.items()
        for name in names.split()
    }
    found: dict[str, dict[str, Sentence]] = {word: {} for word in labels}
    for corpus, text in _lines(work_dir):
        name = hashlib.sha256(text.encode()).hexdigest()[:8]
        if name in of_hash:
            word, sense = of_hash[name]
            found[word][name] = Sentence(text, sense, corpus)
    missing = len(of_hash) - sum(map(len, found.values()))
    if missing:
        raise DataError(
            f"{work_dir} must hold the {len(of_hash)} sentences of {_LABELS.name}. "
            f"Received: {missing} of them are missing"
        )
    return {word: list(sentences.values()) for word, sentences in found.items()}


def _lines(work_dir):
    for data in DATA_SETS:
        if data.language != ENGLISH:
            continue
        for split in _SPLITS:
            path = os.path.join(directory_of(data, work_dir), f"{split}.tsv")
            with open(path, encoding="utf-8") as file:
                yield from ((data.name, line.rpartition("\t")[0]) for line in file)
    with open(os.path.join(work_dir, "data", "ordered_text", "text.txt"), encoding="utf-8") as file:
        yield from (("ordered_text", line.rstrip("\n")) for line in file)


def separation(vectors: np.ndarray, sentences: list[Sentence], within: bool = False) -> float:
    """Returns the area under the ROC curve of cosines: pairs of one sense against pairs of two.

    0.5 is chance, and what equal vectors get.

    Args:
        vectors: The vector of the word in each sentence, `[n, H]`.
        sentences: The n sentences.
        within: Count only pairs of the same corpus, whose style does not give the sense away.
    """
    units = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    # Equal vectors must have equal cosines.
    cosines = np.round(units.astype(np.float64) @ units.T.astype(np.float64), 5)
    same, other = [], []
    for i, j in itertools.combinations(range(len(sentences)), 2):
        if not within or sentences[i].corpus == sentences[j].corpus:
            pairs = same if sentences[i].sense == sentences[j].sense else other
            pairs.append(cosines[i, j])
    if not same or not other:
        return float("nan")
    differences = np.subtract.outer(same, other)
    return float((differences > 0).mean() + 0.5 * (differences == 0).mean())


def separation_by_layer(
    model, sentences: Mapping[str, list[Sentence]]
) -> dict[str, tuple[float, float]]:
    """Returns for each layer the mean over the words: of all pairs, and of those of one corpus."""
    from bert_tf.inspection import project_word

    values: dict[str, list[tuple[float, float]]] = {}
    for word, of_word in sentences.items():
        texts = [one.text for one in of_word]
        for layer, found in project_word(model, word, texts).items():
            if found.metadata["text"] != texts:
                raise DataError(
                    f"Each sentence of {word!r} must have the word once, in the model's length. "
                    f"Received: {len(texts)} sentences with {len(found.vectors)} places"
                )
            both = tuple(separation(found.vectors, of_word, within) for within in (False, True))
            values.setdefault(layer, []).append(both)
    return {layer: tuple(np.nanmean(of_layer, axis=0)) for layer, of_layer in values.items()}
