"""Scores of sentences to summaries, in the graph or eagerly.

Glossary: `B` documents, `S` sentences of all documents, `A` documents that still need a sentence,
`K` different trigrams of all documents.
"""

import tensorflow as tf

from bert_tf.base.ragged_rows import kept_values, row_ids
from bert_tf.inputs.traced import SPLITS, STRINGS, traced

# Scripts that write no spaces: each character is a word.
UNSPACED_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}"


def words_of(sentences: tf.Tensor) -> tf.RaggedTensor:
    """Returns the words of sentences: runs of letters and digits, in lower case.

    For ASCII these are the words of Google's `rouge-score` without stemming. That package drops all
    other letters.

    Args:
        sentences: Strings `[S]`, UTF-8.

    Returns:
        Ragged strings `[S, (words)]`.

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
    """Selects the best sentences of each document.

    Args:
        sentences: Strings, ragged `[B, (S)]`. An empty one is never selected.
        scores: The score of each, float32 `[S]`; of equal scores the first sentence is best.
        num_sentences: How many to select in a document, if there are as many.
        trigram_blocking: Whether to leave out a sentence that has three words in a row in common
            with one selected before it.

    Returns:
        bool `[S]`.

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
