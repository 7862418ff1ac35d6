"""Scores of sentences to summaries, in the graph or eagerly; reference summaries to labels.

Glossary: `B` documents, `S` sentences of all documents, `A` documents that still need a sentence,
`K` different trigrams of all documents, `G` different n-grams of a reference summary.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_bar
from bert_tf.base.ragged_rows import kept_values, row_ids
from bert_tf.errors import user_error
from bert_tf.inputs.traced import SPLITS, STRINGS, traced

# Scripts that write no spaces: each character is a word.
UNSPACED_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}"


def words_of(sentences: tf.Tensor) -> tf.RaggedTensor:
    """Returns the words of sentences `[S]`, ragged `[S, (words)]`: runs of letters and digits.

    They are in lower case. For ASCII these are the words of Google's `rouge-score` without
    stemming. That package drops all other letters.

    Example:
        >>> words_of(tf.constant(["It's 3.5 m.", "猫"])).to_list()
        [[b'it', b's', b'3', b'5', b'm'], [b'\\xe7\\x8c\\xab']]
    """
    lowered = tf.strings.lower(sentences, encoding="utf-8")
    spaced = tf.strings.regex_replace(lowered, f"([{UNSPACED_SCRIPTS}])", r" \1 ")
    return tf.strings.split(tf.strings.regex_replace(spaced, r"[^\pL\pM\pN]+", " "))


# Sentences are joined without a space after these, CJK punctuation and full-width forms included.
_UNSPACED_END = rf"(?s).*[{UNSPACED_SCRIPTS}\x{{3000}}-\x{{303F}}\x{{FF00}}-\x{{FFEF}}]"


def select_sentences(
    sentences: tf.RaggedTensor, scores: tf.Tensor, num_sentences: int, trigram_blocking: bool
) -> tf.Tensor:
    """Returns which sentences are the best of each document, bool `[S]`.

    Args:
        sentences: Strings, ragged `[B, (S)]`. An empty one is never selected.
        scores: The score of each, float32 `[S]`; of equal scores the first sentence is best.
        num_sentences: How many to select in a document, if there are as many.
        trigram_blocking: Whether to leave out a sentence that has three words in a row in common
            with one selected before it.

    Reference: Liu and Lapata 2019 (arXiv 1908.08345), section 4.3.
    """
    texts = sentences.values
    row_starts, lengths = sentences.row_starts(), sentences.row_lengths()  # [B]
    documents = row_ids(sentences.row_splits)  # [S]
    order = tf.argsort(scores, direction="DESCENDING", stable=True)
    order = tf.gather(order, tf.argsort(tf.gather(documents, order), stable=True))  # by document
    trigrams, num_trigrams = _trigrams(texts, documents)
    if not trigram_blocking:
        trigrams = trigrams[:, :0]

    def step(rank, selected, counts, taken):
        active = tf.where((rank < lengths) & (counts < num_sentences))[:, 0]  # [A]
        candidates = tf.gather(order, tf.gather(row_starts, active) + rank)
        own = tf.gather(trigrams, candidates)  # [A, (trigrams)]
        repeats = tf.reduce_any(own.with_values(tf.gather(taken, own.values)), axis=1)
        is_good = ~repeats & (tf.gather(texts, candidates) != "")
        chosen = tf.boolean_mask(candidates, is_good)
        selected = _set(selected, chosen, tf.ones_like(chosen, tf.bool))
        new = tf.ragged.boolean_mask(own, is_good).values
        taken = _set(taken, new, tf.ones_like(new, tf.bool))
        grown = tf.boolean_mask(active, is_good)
        return rank + 1, selected, _set(counts, grown, tf.gather(counts, grown) + 1), taken

    rank, none = tf.constant(0, lengths.dtype), tf.zeros_like(texts, tf.bool)
    counts, taken = tf.zeros_like(lengths), tf.zeros([num_trigrams], tf.bool)
    return tf.while_loop(
        lambda rank, _, counts, __: tf.reduce_any((rank < lengths) & (counts < num_sentences)),
        step,
        (rank, none, counts, taken),
    )[1]


def join_sentences(sentences: tf.RaggedTensor) -> tf.Tensor:
    """Joins the sentences of each document `[B, (S)]` by a space, Chinese and Japanese without."""
    is_unspaced = tf.strings.regex_full_match(sentences.values, _UNSPACED_END)
    spaced = tf.strings.join([sentences.values, tf.where(is_unspaced, "", " ")])
    padded = sentences.with_values(spaced).to_tensor("")  # [B, most sentences of a document]
    return tf.strings.strip(tf.strings.reduce_join(padded, axis=1))


def join_best_sentences(
    num_sentences: int,
    trigram_blocking: bool,
    texts: tf.Tensor,
    row_splits: tf.Tensor,
    scores: tf.Tensor,
) -> tf.Tensor:
    """Returns the summaries of documents, string `[B]`, of sentences `[S]` with their scores."""
    sentences = tf.RaggedTensor.from_row_splits(texts, row_splits, validate=False)
    selected = select_sentences(sentences, scores, num_sentences, trigram_blocking)
    return join_sentences(kept_values(sentences, selected))


join_best_sentences_eagerly = traced(join_best_sentences, [STRINGS, SPLITS, tf.TensorSpec([None])])


def _trigrams(texts, documents):
    """Returns a number for each trigram of words, ragged `[S, (trigrams)]`, and how many there are.

    The same trigram in two documents has two numbers.
    """
    trigrams = tf.strings.ngrams(words_of(texts), 3)
    rows = tf.gather(documents, row_ids(trigrams.row_splits))
    keys = tf.strings.join([tf.strings.as_string(rows), trigrams.values], separator=" ")
    different, numbers = tf.unique(keys)
    return trigrams.with_values(numbers), tf.size(different)


def _set(tensor, places, values):
    """Returns the vector `tensor` with `values` at `places`."""
    return tf.tensor_scatter_nd_update(tensor, places[:, tf.newaxis], values)


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

    Reference: Liu and Lapata 2019 (arXiv 1908.08345), section 5.1.
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
    """The n-grams that sentences have in common with a reference, for ROUGE-n with n 1 or 2.

    Sentences and reference are the ids of their words, int64 `[words]`.
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
