"""What is inspected: a text or a pair as one row of tokens, and the number that is explained.

The number is one of a model's outputs, or the similarity of two vectors. The task's
`TaskSpec.output_axes` says what the outputs are. All of them become a list of answers, each with a
name, and one answer is the target.

Glossary: `B` rows, `T` tokens of the row, `A` answers.
"""

import numbers
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import tasks
from bert_tf.errors import UserError, require, user_error
from bert_tf.models import CLASS_AXIS, END_AXIS, TOKEN_AXIS, VECTOR_AXIS, WORD_AXIS
from bert_tf.text import Tokenizer
from bert_tf.training.evaluation import sigmoid, softmax

# The number of a text, and of a word, that special tokens such as [CLS] have.
SPECIAL = -1
TOKENS_OF_COPIES = 4096  # of changed copies of a row that are computed at a time
_CLS, _SEP = -1, -2  # in place of the number of a piece


class InspectedRow:
    """The tokens of a text or of a pair, cut at `max_length` as the model cuts them.

    Args:
        tokenizer: The tokenizer of the model.
        texts: One text or two.
        max_length: The maximum number of tokens of the row.

    Attributes:
        texts: The argument.
        tokens: `token_ids`, `segment_ids` and `padding_mask`, each `[1, T]`.
        ids: int32 `[T]`.
        pieces: The T pieces as people read them.
        text_numbers: int64 `[T]`: 0 or 1, the number of each piece's text, or `SPECIAL`.
        starts, ends: int64 `[T]`: the first character (code point) of each piece in its text and
            the one after its last; 0 for special tokens.
        words: int64 `[T]`: the number of the word of each piece, or `SPECIAL`.
        num_cut: The number of pieces that were cut.
    """

    def __init__(self, tokenizer: Tokenizer, texts: tuple[str, ...], max_length: int):
        self.tokenizer = tokenizer
        self.texts = texts
        pieces = [tokenizer.tokenize_with_offsets([text], trim_offsets=True) for text in texts]
        counts = [int(part.ids.row_lengths()[0]) for part in pieces]
        source, segments = piece_numbers(tokenizer, counts, max_length)
        self.num_cut = sum(counts) - int((source >= 0).sum())

        def of_row(values, special):
            joined = np.concatenate([np.asarray(part, np.int64) for part in values])
            padded = np.append(joined, 0)  # so that an empty text has an entry to look up
            return np.where(source >= 0, padded[np.maximum(source, 0)], special)

        specials = np.where(source == _CLS, tokenizer.cls_token_id, tokenizer.sep_token_id)
        self.ids = of_row([p.ids.values.numpy() for p in pieces], specials).astype(np.int32)
        self.starts = of_row([p.char_starts.values.numpy() for p in pieces], 0)
        self.ends = of_row([p.char_ends.values.numpy() for p in pieces], 0)
        self.text_numbers = of_row([np.full(n, i) for i, n in enumerate(counts)], SPECIAL)
        self.words = self._words(source)
        self.tokens = {
            "token_ids": tf.constant(self.ids[np.newaxis]),
            "segment_ids": tf.constant(segments[np.newaxis].astype(np.int32)),
            "padding_mask": tf.ones([1, len(source)], tf.bool),
        }
        self.readable = tokenizer.readable_pieces()
        self.pieces = [self.readable[number] for number in self.ids]

    def __len__(self) -> int:
        return len(self.ids)

    def _words(self, source):
        """Numbers the words: a piece begins one unless it continues that of the piece before it.

        That piece must be next to it in the text too: in the middle, pieces may have been cut.
        """
        is_text = source >= 0
        continues = ~self.tokenizer.word_starts(tf.constant(self.ids)).numpy() & is_text
        continues[1:] &= source[1:] == source[:-1] + 1
        continues[1:] &= self.text_numbers[1:] == self.text_numbers[:-1]
        continues[0] = False
        return np.where(is_text, np.cumsum(is_text & ~continues) - 1, SPECIAL)

    @property
    def num_words(self) -> int:
        """The number of words."""
        return int(self.words.max(initial=SPECIAL)) + 1

    @property
    def hiding_id(self) -> int:
        """The id of the piece that hides others: `[MASK]`, or `[UNK]` where there is none."""
        mask = self.tokenizer.mask_token_id
        return self.tokenizer.unk_token_id if mask is None else mask

    def copies(self, count: int, **changed: Any) -> dict[str, tf.Tensor]:
        """Returns the tokens `[count, T]`, with other values for the names that are given."""
        tokens = {name: tf.repeat(values, count, axis=0) for name, values in self.tokens.items()}
        return {**tokens, **changed}

    def sum_of_words(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of the values `[T]` of each word's pieces, without special tokens'."""
        is_text = self.words != SPECIAL
        return np.bincount(self.words[is_text], values[is_text], self.num_words)


def piece_numbers(
    tokenizer: Tokenizer, counts: list[int], max_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which piece each token of a row is, and the segment ids, int32 `[T]`.

    `counts` are the numbers of pieces of one text or two, which are numbered together from 0.
    """
    pieces = [tf.RaggedTensor.from_row_splits(tf.range(n), [0, n]) for n in counts]
    if len(pieces) > 1:
        pieces[1] += counts[0]
    rows = tokenizer.join_segments(*(*pieces, None)[:2], _CLS, _SEP, max_length)
    return tuple(row[0].numpy() for row in rows)


def require_text(name: str, text: str) -> None:
    """Raises `UserError` if `text`, the argument `name`, is no string or not valid Unicode."""
    if not isinstance(text, str):
        raise UserError(f"`{name}` must be a string. Received: {name}={text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"`{name}` must be valid Unicode. Received: half of a surrogate pair, "
            f"U+{ord(text[error.start]):04X}, at character {error.start}"
        ) from None


def parts(num_rows: int, length: int) -> Iterator[slice]:
    """Yields slices of rows with at most `TOKENS_OF_COPIES` tokens together, or one row.

    Example:
        >>> [part.stop - part.start for part in parts(5, 2000)]
        [2, 2, 1]
    """
    size = max(1, TOKENS_OF_COPIES // max(length, 1))
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def in_parts(num_rows: int, length: int, compute: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Returns what `compute` returns for the parts of the rows, one after another."""
    return np.concatenate([np.asarray(compute(part)) for part in parts(num_rows, length)])


MOST_ANSWERS = 10  # that are listed


def is_whole(value: Any) -> bool:
    """Returns whether a value is an integer of Python or NumPy; True and False are none."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


class TargetAnswer(NamedTuple):
    """One of the answers.

    Attributes:
        number: Its place among all answers.
        label: Its name.
        score: What the model computes: a logit, a number or a similarity.
        probability: Its probability; None where the model gives none.
    """

    number: int
    label: str
    score: float
    probability: float | None


class Target:
    """What a model says about a row of tokens, and the answer that is explained.

    Args:
        model: A task model whose spec has `output_axes`.
        row: The row.
        other: For a model of vectors: another row, with whose vector that of `row` is compared.
            None compares the vector with itself.
        label: The name of the answer, or its number; None for the most probable.
        piece: For a model with an answer for every token: the token; None for `[MASK]`, or for the
            first token whose answer is not the most frequent one.

    Attributes:
        name: The name of the answer.
        number: Its place.
        piece: The token; None where the answers are about the whole row.
        answers: The most probable `TargetAnswer`s, the best first; the target is among them.
        piece_labels: The most probable class of each token where there are such classes, else None.

    Raises:
        UserError: If there is no such answer or token, or a score is NaN or infinite.
    """

    def __init__(
        self,
        model: Any,
        row: InspectedRow,
        other: InspectedRow | None = None,
        label: str | int | None = None,
        piece: int | None = None,
    ):
        self._model, self._row = model, row
        self._axes = tasks.spec_of(type(model)).output_axes
        self._anchor = None  # the vector to compare with
        self.piece, self.piece_labels = None, None
        if self._axes == (VECTOR_AXIS,):
            vector = model((other or row).copies(1))  # [1, D]
            self._anchor = tf.stop_gradient(tf.math.l2_normalize(vector, axis=-1))
        elif self._axes[0:1] == (TOKEN_AXIS,) and len(self._axes) > 1:
            self.piece = self._chosen_piece(piece)
        names = self._names(other)
        scores = self.scores_of_all(row.tokens).numpy()[0]  # [A]
        probabilities = self.probabilities(scores[np.newaxis])
        best = np.argsort(-scores, kind="stable")[:MOST_ANSWERS]
        self.number = int(best[0]) if label is None else _numbered(label, names)
        if self.number not in best:
            best = np.append(best, self.number)
        self.name = names[self.number]
        self.answers = [
            TargetAnswer(
                int(place),
                names[place],
                float(scores[place]),
                None if probabilities is None else float(probabilities[0, place]),
            )
            for place in best
        ]

    @property
    def is_similarity(self) -> bool:
        """Whether it is the cosine of two vectors."""
        return self._anchor is not None

    def scores_of_all(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the scores of all answers, float32 `[B, A]`, with their gradients.

        Raises `UserError` if one is NaN or infinite.
        """
        scores = self._scores(tokens)
        if self._axes[-1:] == (WORD_AXIS,):
            scores = scores[:, : len(self._row.readable)]  # a table may have unused rows
        if not np.isfinite(scores.numpy()).all():
            received = "NaN or infinity in the outputs for this text; the weights may be damaged"
            raise user_error("`model`", "compute finite numbers", received)
        return scores

    def _scores(self, tokens):
        if self._axes == (TOKEN_AXIS, WORD_AXIS):
            place = tf.fill([tf.shape(tokens["token_ids"])[0], 1], self.piece)
            logits = self._model({**tokens, "masked_positions": place})
            return tf.cast(tf.squeeze(logits, 1), tf.float32)  # [B, 1, V] -> [B, V]
        outputs = tf.cast(self._model(tokens), tf.float32)
        if self._anchor is not None:
            cosine = tf.matmul(tf.math.l2_normalize(outputs, axis=-1), self._anchor, False, True)
            return cosine  # [B, D] x [1, D] -> [B, 1]
        if self.piece is not None:
            outputs = outputs[:, self.piece]  # [B, T, C] -> [B, C]
        return tf.reshape(outputs, [tf.shape(outputs)[0], -1])

    def score(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the score of the target, float32 `[B]`, with its gradient."""
        return self.scores_of_all(tokens)[:, self.number]

    def probabilities(self, scores: np.ndarray) -> np.ndarray | None:
        """Returns float64 `[B, A]` for the scores of all answers, or None if there are none."""
        preprocessor = self._model.preprocessor
        if self._axes == (CLASS_AXIS,) and hasattr(preprocessor, "probabilities"):
            is_number = getattr(self._model, "problem_type", None) == "regression"
            return None if is_number else preprocessor.probabilities(scores)
        if self._axes == (TOKEN_AXIS,):
            return sigmoid(scores)
        if self._axes == (END_AXIS, TOKEN_AXIS):
            by_end = scores.reshape(len(scores), 2, -1)  # [B, 2 T] -> [B, 2, T]
            return softmax(by_end).reshape(scores.shape)
        has_classes = self._axes[-1:] == (CLASS_AXIS,) or len(self._axes) > 1
        return softmax(scores) if has_classes and scores.shape[1] > 1 else None

    def _names(self, other):
        pieces = [f"{piece} ({place})" for place, piece in enumerate(self._row.pieces)]
        if self._axes == (END_AXIS, TOKEN_AXIS):
            return [f"{end}: {piece}" for end in ("start", "end") for piece in pieces]
        if self._axes == (TOKEN_AXIS,):
            return pieces
        if self._anchor is not None:
            return ["similarity to " + ("the other text" if other else "the whole text")]
        if self._axes[-1:] == (WORD_AXIS,):
            return self._row.readable
        return self._class_names() or ["score"]

    def _class_names(self):
        preprocessor = self._model.preprocessor
        for owner, attribute in ((preprocessor, "names"), (self._model, "labels")):
            if getattr(owner, attribute, None):
                return list(getattr(owner, attribute))
        count = self._model(self._row.tokens).shape[-1] if self._axes else 1
        return [f"class {number}" for number in range(count)] if count > 1 else None

    def _chosen_piece(self, piece):
        row = self._row
        if piece is not None:
            rule = f"must be the number of a token, in [0, {len(row)})"
            require(is_whole(piece) and 0 <= piece < len(row), rule, UserError, piece=piece)
            piece = int(piece)
        is_text = np.flatnonzero(row.words != SPECIAL)
        first = int(is_text[0]) if len(is_text) else 0
        if self._axes[1] == WORD_AXIS:
            masks = np.flatnonzero(row.ids == row.tokenizer.mask_token_id)
            first = int(masks[0]) if len(masks) else first
            return first if piece is None else piece
        best = self._model(row.tokens).numpy()[0].argmax(axis=-1)  # [T, C] -> [T]
        names = self._class_names()
        self.piece_labels = [names[number] for number in best]
        if piece is None and len(is_text):
            usual = np.bincount(best[is_text]).argmax()
            unusual = is_text[best[is_text] != usual]
            return int(unusual[0]) if len(unusual) else first
        return first if piece is None else piece


def _numbered(label, names):
    if is_whole(label) and 0 <= label < len(names):
        return int(label)
    if label in names:
        return names.index(label)
    shown = ", ".join(map(str, names[:MOST_ANSWERS])) + (", …" if len(names) > MOST_ANSWERS else "")
    expected = f"be the name or the number of one of the {len(names)} answers: {shown}"
    raise user_error("`target`", expected, f"target={label!r}")
