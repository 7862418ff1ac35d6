"""Labels for training out of reference summaries: the sentences that are most like the summary.

Glossary: `S` sentences of a document, `G` different n-grams of its reference summary.

Reference: Liu and Lapata 2019 (arXiv 1908.08345), section 5.1: sentences are added greedily.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_bar
from bert_tf.errors import user_error
from bert_tf.tasks.extractive_summarization.selection import words_of

_DOCUMENTS_AT_ONCE = 1000  # split into words together, so that little memory is needed


def oracle_labels(
    documents: Sequence[Sequence[str]], summaries: Sequence[str], num_sentences: int = 3
) -> list[np.ndarray]:
    """Returns which sentences of each document to extract, chosen greedily.

    The sentence is added that most increases the sum of ROUGE-1 F and ROUGE-2 F of all chosen
    sentences, until no sentence increases it. Bigrams do not cross the ends of sentences.

    Args:
        documents: A list of sentences for each document.
        summaries: The reference summary of each.
        num_sentences: The maximum number of sentences to choose in a document.

    Returns:
        For each document int32 `[S]`: 1 for a chosen sentence, 0 for another.

    Raises:
        UserError: If there is not one summary for each document.

    Example:
        >>> oracle_labels([["It rains.", "Ada wrote a program."]], ["Ada's program"])
        [array([0, 1], dtype=int32)]
    """
    if len(documents) != len(summaries):
        received = f"{len(documents)} documents, {len(summaries)} summaries"
        raise user_error("`summaries`", "be one for each document", received)
    labels = []
    starts = range(0, len(documents), _DOCUMENTS_AT_ONCE)
    for start in progress_bar(
        starts, desc="Labels", unit=" thousand documents", delay=3, leave=False
    ):
        part = slice(start, start + _DOCUMENTS_AT_ONCE)
        labels += _labels(documents[part], summaries[part], num_sentences)
    return labels


def _labels(documents, summaries, num_sentences):
    texts = [text for pair in zip(documents, summaries) for text in (*pair[0], pair[1])]
    words = words_of(tf.constant(texts, tf.string))
    _, ids = tf.unique(words.values, tf.int64)
    rows = iter(np.split(ids.numpy(), words.row_splits.numpy()[1:-1]))
    labels = []
    for document in documents:
        sentences = [next(rows) for _ in document]
        chosen = greedy_selection(sentences, next(rows), num_sentences)
        labels.append(np.zeros(len(sentences), np.int32))
        labels[-1][chosen] = 1
    return labels


def greedy_selection(
    sentences: list[np.ndarray], reference: np.ndarray, num_sentences: int
) -> list[int]:
    """Returns the numbers of the chosen sentences, in the order in which they were chosen.

    `sentences` and `reference` are the ids of their words, int64 `[words]`.
    """
    overlaps = [NGramOverlap(sentences, reference, n) for n in (1, 2)]
    chosen: list[int] = []
    best = 0.0
    while sentences and len(chosen) < num_sentences:
        scores = sum(overlap.scores_with(chosen) for overlap in overlaps)
        scores[chosen] = 0.0
        sentence = int(np.argmax(scores))
        if scores[sentence] <= best:
            break
        best = scores[sentence]
        chosen.append(sentence)
    return chosen


class NGramOverlap:
    """The n-grams that sentences have in common with a reference, for ROUGE-n.

    Args:
        sentences: The ids of the words of each sentence, int64 `[words]`.
        reference: The same of the reference.
        n: 1 or 2.
    """

    def __init__(self, sentences: list[np.ndarray], reference: np.ndarray, n: int):
        size = 1 + max((row.max() for row in (*sentences, reference) if len(row)), default=0)
        grams = [_ngrams(row, n, size) for row in sentences]
        different, self._in_reference = np.unique(
            _ngrams(reference, n, size), return_counts=True
        )  # [G]
        self._totals = np.array([len(row) for row in grams])  # [S]
        self._counts = np.zeros([len(grams), len(different)], np.int64)  # [S, G]
        for counts, row in zip(self._counts, grams):
            np.add.at(counts, np.searchsorted(different, row[np.isin(row, different)]), 1)

    def scores_with(self, chosen: list[int]) -> np.ndarray:
        """Returns ROUGE-n F of the chosen sentences and one more, for each, float64 `[S]`."""
        counts = self._counts[chosen].sum(axis=0) + self._counts  # [S, G]
        matches = np.minimum(counts, self._in_reference).sum(axis=1)  # [S]
        total = self._totals[chosen].sum() + self._totals + self._in_reference.sum()  # [S]
        return 2.0 * matches / np.maximum(total, 1)  # the harmonic mean of precision and recall


def _ngrams(words, n, size):
    """Returns the n-grams of words `[words]` as numbers, with `size` more than any word."""
    return words if n == 1 else words[:-1] * size + words[1:]
