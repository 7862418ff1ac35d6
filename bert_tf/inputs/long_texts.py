"""Handles texts that are too long for the model: windows over their tokens, or key sentences.

See also `BertTokenizer(truncation_side=...)` and `bert_tf.adapt.resize_position_embeddings`.

Glossary: `B` texts or rows, `T` tokens of a text, `W` windows, `S` sentences of a text.
"""

import itertools
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import kept_values, row_ids
from bert_tf.errors import UserError, require

# White space as Python's `\s`. In TensorFlow's regular expressions `\s` is ASCII.
_SPACE = "[ \t-\r\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
# A sentence ends after its end mark and closing quotes or brackets. Chinese has no space there.
_SENTENCE_END = rf"[.!?][\"'”’)\]]*{_SPACE}+|[。！？；…][”’」』）]*{_SPACE}*|{_SPACE}*\n{_SPACE}*"
_CUT = "\x01"  # marks where to cut; tokenization removes control characters
TEXTRANK_DAMPING = 0.85  # Mihalcea and Tarau 2004, section 2
_TEXTRANK_STEPS = 100  # the influence of the start decays like TEXTRANK_DAMPING^steps: below 1e-7


def token_windows(
    token_ids: tf.RaggedTensor, size: int, stride: int
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Cuts texts into windows, one every `stride` tokens, the last at the end of the text.

    Args:
        token_ids: Ids without special tokens, ragged int32 `[B, (T)]`.
        size: The number of tokens of a window.
        stride: The number of tokens between the starts of two windows, at most `size`.

    Returns:
        The windows, ragged int32 `[W, (size)]`, at least one per text, and the index of the text of
        each window, int64 `[W]`.

    Example:
        >>> windows, texts = token_windows(tf.ragged.constant([[1, 2, 3, 4, 5, 6], [7]]), 4, 3)
        >>> windows.to_list(), texts.numpy().tolist()
        ([[1, 2, 3, 4], [3, 4, 5, 6], [7]], [0, 0, 1])
    """
    lengths = token_ids.row_lengths()  # [B]
    beyond = tf.maximum(lengths - size, 0)
    counts = 1 + (beyond + stride - 1) // stride
    indices = tf.ragged.range(counts, row_splits_dtype=tf.int64)  # [B, (windows of the text)]
    text_of_window = row_ids(indices.row_splits)  # [W]
    starts = tf.minimum(indices.values * stride, tf.gather(beyond, text_of_window))
    starts += tf.gather(token_ids.row_starts(), text_of_window)
    sizes = tf.gather(tf.minimum(lengths, size), text_of_window)
    places = tf.ragged.range(starts, starts + sizes, row_splits_dtype=tf.int64)  # [W, (size)]
    return places.with_values(tf.gather(token_ids.values, places.values)), text_of_window


def whole_windows(
    item_splits: tf.Tensor,
    row_splits: tf.Tensor,
    size: int,
    breaks: tf.Tensor | None = None,
    keeps_empty: bool = False,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts rows of items, such as sentences of words, into windows of whole items.

    A window has as many items as fit. If it does not reach the end of its row and there is a break
    in its second half, it ends there.

    Args:
        item_splits: The tokens of each item, int64 `[items + 1]`, at most `size` in one.
        row_splits: The items of each row, int64 `[B + 1]`.
        size: The maximum number of tokens of a window.
        breaks: The items before which to cut if possible, int64, ascending from 0; None for none.
        keeps_empty: Whether a row without items has a window without items, or none.

    Returns:
        The item after the last of each window, and the row of each window, int64 `[W]`.

    Example:
        >>> ends, rows = whole_windows(tf.constant([0, 2, 4, 5, 9]), tf.constant([0, 3, 4]), 4)
        >>> ends.numpy().tolist(), rows.numpy().tolist()
        ([2, 3, 4], [0, 0, 1])
    """
    item_splits, row_splits = (tf.cast(splits, tf.int64) for splits in (item_splits, row_splits))
    row_ends = row_splits[1:]

    def step(starts, ends, are_windows):
        room = tf.gather(item_splits, starts) + size
        cut = tf.searchsorted(item_splits, room, side="right", out_type=tf.int64) - 1
        cut = tf.minimum(cut, row_ends)
        if breaks is not None:
            half = starts + (cut - starts) // 2
            last = tf.gather(breaks, tf.searchsorted(breaks, cut, side="right") - 1)
            cut = tf.where((cut < row_ends) & (last > half), last, cut)
        is_window = starts < row_ends
        if keeps_empty:
            is_window |= tf.shape(are_windows)[1] == 0
        ends = tf.concat([ends, cut[:, tf.newaxis]], axis=1)
        return cut, ends, tf.concat([are_windows, is_window[:, tf.newaxis]], axis=1)

    starts = row_splits[:-1]
    table = tf.TensorShape([None, None])
    none = tf.zeros([tf.size(starts), 0], tf.int64)
    _, ends, are_windows = tf.while_loop(
        lambda starts, ends, _: tf.reduce_any(starts < row_ends) | (tf.shape(ends)[1] == 0),
        step,
        (starts, none, tf.cast(none, tf.bool)),
        shape_invariants=(starts.shape, table, table),
    )
    return tf.boolean_mask(ends, are_windows), tf.where(are_windows)[:, 0]


def split_sentences(text: str) -> list[str]:
    """Splits a text into sentences at end marks (Latin and Chinese) and line ends."""
    borders = [0, *(end.end() for end in re.finditer(_SENTENCE_END, text)), len(text)]
    parts = (text[start:end].strip() for start, end in itertools.pairwise(borders))
    return [part for part in parts if part]


def split_sentences_in_graph(texts: tf.Tensor) -> tf.RaggedTensor:
    """Splits texts, strings `[B]`, as `split_sentences` does: ragged strings `[B, (S)]`.

    The control character U+0001 is removed.
    """
    texts = tf.strings.regex_replace(texts, _CUT, "")
    sentences = tf.strings.split(
        tf.strings.regex_replace(texts, f"({_SENTENCE_END})", rf"\1{_CUT}"), _CUT
    )
    stripped = tf.strings.regex_replace(sentences.values, f"^{_SPACE}+|{_SPACE}+$", "")
    return kept_values(sentences.with_values(stripped), stripped != "")


def key_sentences(
    texts: Sequence[str], tokenizer, max_length: int, method: str = "textrank"
) -> list[str]:
    """Shortens texts to `max_length` tokens by removing the least important sentences.

    Sentences are selected in the order of their scores if they still fit. The weight of a piece in
    a sentence is its count times log(S / number of sentences that contain it).

    Args:
        texts: The texts.
        tokenizer: A `BertTokenizer`.
        max_length: The maximum number of tokens of a text, including `[CLS]` and `[SEP]`.
        method: "textrank" gives a high score to a sentence that is similar (cosine of the weights)
            to sentences with high scores. "tfidf" scores by the mean weight of the pieces.

    Returns:
        For each text its key sentences in their order, joined by a space (Chinese ones without it).
        If no sentence fits, the best one.

    Raises:
        UserError: If `method` is unknown or `max_length` is below 3.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer("vocab.txt")
        >>> text = "A film. It rains. The film is bad. A bad film."
        >>> bert_tf.inputs.key_sentences([text], tokenizer, max_length=16)
        ['A film. The film is bad. A bad film.']

    Reference: Mihalcea and Tarau 2004, "TextRank: Bringing Order into Texts".
    """
    require(method in _RANKINGS, f"must be one of {sorted(_RANKINGS)}", UserError, method=method)
    require(max_length >= 3, "must be at least 3", UserError, max_length=max_length)
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
    """Returns the TF-IDF weights of the pieces of sentences, `[S, distinct pieces]`."""
    distinct, column = np.unique(pieces.values.numpy(), return_inverse=True)
    counts = np.zeros([int(pieces.nrows()), len(distinct)])
    np.add.at(counts, (row_ids(pieces.row_splits).numpy(), column), 1.0)
    return counts * np.log(len(counts) / np.count_nonzero(counts, axis=0))


def _tfidf(weights):
    return weights.sum(axis=1) / np.maximum(np.count_nonzero(weights, axis=1), 1)


def _textrank(weights):
    """Returns the stationary distribution of a random walk to similar sentences, `[S]`."""
    norms = np.linalg.norm(weights, axis=1, keepdims=True)
    units = weights / np.where(norms > 0, norms, 1.0)
    similarity = units @ units.T  # [S, S]
    np.fill_diagonal(similarity, 0.0)
    total = similarity.sum(axis=1, keepdims=True)
    count = len(weights)
    step = np.where(total > 0, similarity / np.where(total > 0, total, 1.0), 1.0 / count)
    rank = np.full(count, 1.0 / count)
    for _ in range(_TEXTRANK_STEPS):
        rank = (1.0 - TEXTRANK_DAMPING) / count + TEXTRANK_DAMPING * (rank @ step)
    return rank


_RANKINGS = {"textrank": _textrank, "tfidf": _tfidf}
