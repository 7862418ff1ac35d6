"""Texts longer than the model: windows over their tokens, or their key sentences.

What cuts a text at one side instead is `BertTokenizer(truncation_side=...)`; a longer position
table is `bert_tf.models.extend_positions`.

Glossary: `B` texts, `W` windows, `S` sentences of a text, `V` vocabulary.
"""

import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

# A sentence ends after its last mark and what closes a quotation; Chinese has no space there.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+|(?<=[。！？；…])[”’」』）]*\s*|\s*\n\s*")
TEXTRANK_DAMPING = 0.85  # Mihalcea and Tarau 2004, section 2
# The chain forgets its start like DAMPING^steps: after so many, less than 1e-7 of it is left.
_TEXTRANK_STEPS = 100


def token_windows(
    token_ids: tf.RaggedTensor, size: int, stride: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Windows of at most `size` tokens, one every `stride`; the last ends where its text ends.

    Args:
        token_ids: int32 ragged `[B, (T)]`, without special tokens.
        size: Tokens of a window.
        stride: Tokens from the start of one window to that of the next, at most `size`.

    Returns:
        int32 ragged `[W, (size)]`, at least one window a text, and the text of each window, int64
        `[W]`.

    Example:
        >>> windows, texts = token_windows(tf.ragged.constant([[1, 2, 3, 4, 5, 6], [7]]), 4, 3)
        >>> windows.to_list(), texts.numpy().tolist()
        ([[1, 2, 3, 4], [3, 4, 5, 6], [7]], [0, 0, 1])
    """
    lengths = tf.cast(token_ids.row_lengths(), tf.int64)  # [B]
    beyond = tf.maximum(lengths - size, 0)
    counts = 1 + (beyond + stride - 1) // stride
    number = tf.ragged.range(counts, row_splits_dtype=tf.int64)  # [B, (windows of the text)]
    text_of_window = number.value_rowids()  # [W]
    starts = tf.minimum(number.values * stride, tf.gather(beyond, text_of_window))
    starts += tf.gather(tf.cast(token_ids.row_starts(), tf.int64), text_of_window)
    sizes = tf.gather(tf.minimum(lengths, size), text_of_window)
    places = tf.ragged.range(starts, starts + sizes, row_splits_dtype=tf.int64)  # [W, (size)]
    return places.with_values(tf.gather(token_ids.values, places.values)), text_of_window


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, by their end marks (Latin and Chinese) and line ends."""
    sentences, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        sentences.append(text[start : end.end()])
        start = end.end()
    return [part.strip() for part in (*sentences, text[start:]) if part.strip()]


def key_sentences(
    texts: Sequence[str], tokenizer, max_length: int, method: str = "textrank"
) -> list[str]:
    """Shortens texts to `max_length` tokens by leaving out their least telling sentences.

    Sentences are ranked, and taken from the top as long as they fit; they keep their order. Texts
    that fit stay as they are. A sentence is the bag of its word pieces, each weighted by its count
    and by log(S / sentences that hold it).

    Args:
        texts: The texts.
        tokenizer: A `BertTokenizer`.
        max_length: Tokens of a text, `[CLS]` and `[SEP]` counted.
        method: "textrank": a sentence matters if sentences that matter are like it (cosine of the
            bags); "tfidf": by the mean weight of its pieces.

    Returns:
        A text for each text: its key sentences, joined by a space (Chinese ones by nothing). If
        the best sentence alone is too long, it comes whole; the tokenizer will cut it.

    Raises:
        UserError: For another method, or a `max_length` below 3.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer("vocab.txt")
        >>> text = "A film. It rains. The film is bad. A bad film."
        >>> bert_tf.data.key_sentences([text], tokenizer, max_length=16)
        ['A film. The film is bad. A bad film.']

    Reference: Mihalcea and Tarau 2004, "TextRank: Bringing Order into Texts".
    """
    if method not in _RANKINGS:
        raise UserError(f"`method` must be one of {sorted(_RANKINGS)}. Received: method={method!r}")
    if max_length < 3:
        raise UserError(f"`max_length` must be at least 3. Received: max_length={max_length}")
    lengths = tokenizer.tokenize(list(texts)).row_lengths().numpy() if len(texts) else []
    budget = max_length - 2
    return [
        text if length <= budget else _shortened(text, tokenizer, budget, _RANKINGS[method])
        for text, length in zip(texts, lengths)
    ]


def _shortened(text, tokenizer, budget, rank):
    sentences = split_sentences(text)
    if len(sentences) < 2:
        return text
    pieces = tokenizer.tokenize(sentences)
    lengths = pieces.row_lengths().numpy()
    scores = rank(_weights(pieces))
    kept, used = [], 0
    for index in np.argsort(-scores, kind="stable"):
        if used + lengths[index] <= budget:
            kept.append(index)
            used += lengths[index]
    if not kept:
        return sentences[int(np.argmax(scores))]
    shortened = ""
    for index in sorted(kept):
        space = " " if shortened and shortened[-1].isascii() else ""
        shortened += space + sentences[index]
    return shortened


def _weights(pieces):
    """TF-IDF of the pieces of S sentences: `[S, distinct pieces]`."""
    sentence, ids = pieces.value_rowids().numpy(), pieces.values.numpy()
    distinct, column = np.unique(ids, return_inverse=True)
    counts = np.zeros([int(pieces.nrows()), len(distinct)])
    np.add.at(counts, (sentence, column), 1.0)
    holding = np.count_nonzero(counts, axis=0)
    return counts * np.log(len(counts) / holding)


def _tfidf(weights):
    return weights.sum(axis=1) / np.maximum(np.count_nonzero(weights, axis=1), 1)


def _textrank(weights):
    """The stationary distribution of a walk from sentence to like sentence: `[S]`."""
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    units = weights / np.where(norms > 0, norms, 1.0)
    likeness = units @ units.T  # [S, S]
    np.fill_diagonal(likeness, 0.0)
    total = likeness.sum(axis=1, keepdims=True)
    count = len(weights)
    step = np.where(total > 0, likeness / np.where(total > 0, total, 1.0), 1.0 / count)
    rank = np.full(count, 1.0 / count)
    for _ in range(_TEXTRANK_STEPS):
        rank = (1.0 - TEXTRANK_DAMPING) / count + TEXTRANK_DAMPING * (rank @ step)
    return rank


_RANKINGS = {"textrank": _textrank, "tfidf": _tfidf}
