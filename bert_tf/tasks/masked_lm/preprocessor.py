"""What `BertMaskedLM` reads and answers: texts to be masked, and texts with masks to be filled.

Glossary: `n` texts, `R` rows, `B` rows of a batch, `T` its length, `M` masks of all texts, `P`
masks of a row, `V` vocabulary.
"""

import random
from collections.abc import Iterable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.token_rows import TokenizedTexts, TokenRows, batches_of_numbers
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.masked_lm.masked_text import RowsToMask, features_and_labels, mask_texts
from bert_tf.text.tokenizer import BertTokenizer

# The most masks of a row. A text with more has several rows, so that it does not make the rows of
# all other texts longer.
MASKS_PER_ROW = 4


class FilledMask(NamedTuple):
    """A piece that may be the word at a `[MASK]`, and its probability.

    Example:
        >>> FilledMask("paris", 0.5).piece
        'paris'
    """

    piece: str
    probability: float


class MaskedRows(TokenRows):
    """Texts with the places of their masks.

    Args:
        texts: n texts.
        columns, counts: The columns of the M masks, text after text, int64 `[M]`, and the number of
            masks of each text, int64 `[n]`.
    """

    def __init__(self, texts: TokenizedTexts, columns: np.ndarray, counts: np.ndarray):
        per_row = min(MASKS_PER_ROW, counts.max(initial=1))
        rows_of_text = -(-counts // per_row)
        self.examples = np.repeat(np.arange(len(counts)), rows_of_text)  # [R]
        self.row_splits = np.concatenate([[0], np.cumsum(counts)])  # [n + 1], over masks
        # The masks of a text fill its rows from the left.
        first_row = np.cumsum(rows_of_text) - rows_of_text
        rank = np.arange(len(self.examples)) - first_row[self.examples]  # of a row in its text
        left = counts[self.examples] - rank * per_row
        self.is_mask = np.arange(per_row) < left[:, np.newaxis]  # [R, P]
        self._positions = np.zeros(self.is_mask.shape, np.int32)
        self._positions[self.is_mask] = columns
        self._texts = texts

    def lengths(self):
        return self._texts.lengths()[self.examples]

    def batch(self, rows: np.ndarray, length: int | None = None) -> dict[str, np.ndarray]:
        """Returns the features of the rows `[B]`: tokens and `masked_positions` `[B, P]`."""
        tokens = self._texts.batch(self.examples[rows], length)
        return {**tokens, "masked_positions": self._positions[rows]}


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMPreprocessor(Preprocessor):
    """Maps texts to masked tokens and labels; logits of masks to the most probable pieces."""

    def training_rows(self, columns, y, sample_weight):
        """Returns the texts, of which 15 % of the tokens are masked in each batch, as the labels.

        Raises:
            UserError: If there is no text, or `y` or `sample_weight` is given.
        """
        self.require_mask_token()
        for name, values in {"y": y, "sample_weight": sample_weight}.items():
            rule = "must be None with text, whose masked tokens are the labels"
            require(values is None, rule, UserError, **{name: type(values).__name__})
        if not columns.num_rows:
            raise UserError("`x` must have at least one text. Received: none.")
        return self.example_rows(columns), ()

    def batches(self, source, training, labels=(), numbers=None, seed=0):
        """Returns masked tokens and labels; masks of rows depend on seed, epoch and text."""
        length = self.max_sequence_length
        if numbers is None:
            self.require_mask_token()
            # `keras.utils.set_random_seed` sets Python's generator too.
            seed = random.randrange(2**31) if training else 0
            return mask_texts(source, self.tokenizer, length, seed=seed, fresh=training)
        rows = RowsToMask(source, self.tokenizer, length, seed if training else 0)
        if training:  # each epoch has masks of its own
            numbers = numbers.map(lambda rows, epoch: rows + epoch * len(source))
        batches = batches_of_numbers(rows, (), numbers, self.static_length)
        return batches.map(features_and_labels)

    def require_mask_token(self) -> None:
        """Raises `UserError` if there is no tokenizer, or it has no mask token."""
        self.require_tokenizer()
        self.tokenizer.require_mask_token()

    def require_masks(self, columns: TextColumns) -> None:
        """Raises `UserError` if a text has no mask."""
        self.require_mask_token()
        mask = self.tokenizer.mask_token.encode()
        for row, texts in enumerate(zip(*columns)):
            if not any(mask in text for text in texts):
                raise UserError(
                    f"Every text must have a {self.tokenizer.mask_token}. "
                    f"Received in row {row}: {quote_texts(texts)}"
                )

    def encode(self, columns, window_stride=None):
        """Returns `MaskedRows`.

        Raises:
            UserError: If a text has no mask, or one after the place where it is cut; or if
                `window_stride` is given.
        """
        self.require_masks(columns)
        rule = "must be None: a mask cannot be in several windows"
        require(window_stride is None, rule, UserError, window_stride=window_stride)
        tokenizer = self.tokenizer.keeping_special_tokens
        texts = TokenizedTexts.of(tokenizer, tuple(columns), self.max_sequence_length)
        places, counts = texts.places_of(tokenizer.mask_token_id)
        mask = self.tokenizer.mask_token.encode()
        for row, count in zip(zip(*columns), counts):
            if sum(text.count(mask) for text in row) != count:
                expected = f"be in the {self.max_sequence_length} tokens to which it is cut"
                received = f"{quote_texts(row)}. Shorten the text, or pass a larger `max_length`."
                raise user_error(f"Every {self.tokenizer.mask_token} of a text", expected, received)
        return MaskedRows(texts, places, counts)

    def postprocess(self, values, rows, columns, pooling):
        """Returns `logits` `[M, V]` of the masks, and their `row_splits`."""
        return {"logits": _of_masks(values, rows), "row_splits": rows.row_splits}

    def candidates(self, values, rows: MaskedRows, top_k: int) -> list[list[list[FilledMask]]]:
        """Returns for each text, for each of its masks, the most probable pieces."""
        vocabulary = self.tokenizer.vocabulary
        filled = [_candidates(logits, top_k, vocabulary) for logits in _of_masks(values, rows)]
        return [filled[start:end] for start, end in zip(rows.row_splits, rows.row_splits[1:])]


def _of_masks(values, rows):  # [R, P, V] -> [M, V]
    return values[rows.is_mask] if len(values) else values.reshape(0, values.shape[-1])


def _candidates(logits, top_k, vocabulary):
    """Returns the most probable pieces by the logits `[V]` of one mask."""
    probabilities = np.exp(logits - logits.max(), dtype=np.float64)
    probabilities /= probabilities.sum()
    best = np.argpartition(-probabilities, top_k - 1)[:top_k]
    best = best[np.argsort(-probabilities[best], kind="stable")]
    return [FilledMask(vocabulary[index], float(probabilities[index])) for index in best]


def quote_texts(texts: Iterable[bytes]) -> str:
    """Returns the beginning of the texts of an example, for an error."""
    return repr(" ||| ".join(text.decode("utf-8", "replace") for text in texts)[:80])


# The feature that carries the token that the mask hides.
TARGET_IDS = "target_ids"


class OneMaskRows(TokenRows):
    """Every sentence with each of its tokens hidden once: R rows.

    `ids` are the tokens of the sentences end to end, without special ones, int `[R]`, and `lengths`
    how many each sentence has, int `[n]`.
    """

    def __init__(self, ids: np.ndarray, lengths: np.ndarray, tokenizer: BertTokenizer):
        self._ids, self._tokenizer = ids, tokenizer
        self._lengths = np.repeat(lengths, lengths)  # [R], of the sentence of a token
        self._starts = np.repeat(np.cumsum(lengths) - lengths, lengths)

    def lengths(self):
        return self._lengths + 2

    def batch(self, rows, length=None):
        """Returns tokens `[B, T]`, `masked_positions` and `target_ids` `[B, 1]`."""
        ids, tokenizer, hidden = self._ids, self._tokenizer, rows[:, np.newaxis]
        lengths, starts = self._lengths[hidden], self._starts[hidden]  # [B, 1]
        columns = np.arange(length or lengths.max(initial=0) + 2)[np.newaxis]  # [1, T]
        inside = (columns >= 1) & (columns <= lengths)  # [B, T]
        token_ids = np.full(inside.shape, tokenizer.pad_token_id, np.int32)
        token_ids[inside] = ids[(starts + columns - 1)[inside]]
        token_ids[:, 0] = tokenizer.cls_token_id
        token_ids[columns == lengths + 1] = tokenizer.sep_token_id
        positions = (hidden - starts + 1).astype(np.int32)
        np.put_along_axis(token_ids, positions, tokenizer.mask_token_id, axis=1)
        return {
            "token_ids": token_ids,
            "padding_mask": columns < lengths + 2,
            "masked_positions": positions,
            TARGET_IDS: ids[hidden].astype(np.int32),
        }


TOP_K = 5  # pieces for each mask, as `fill_mask` gives by default


class MaskedLMModule(ServingModule):
    """Maps text with `[MASK]`s to the most probable pieces for them.

    Raises:
        UserError: If the tokenizer has no mask token.
    """

    def __init__(self, model):
        super().__init__(model)
        model.preprocessor.require_mask_token()
        self._tokenizer = model.tokenizer.keeping_special_tokens

    def of_text(self, text):
        tokens = self._tokenizer(text, max_length=self.max_length)
        masks = tf.where(tokens["token_ids"] == self._tokenizer.mask_token_id)
        rows = tf.size(text, tf.int64)
        places = tf.RaggedTensor.from_value_rowids(masks[:, 1], masks[:, 0], rows)
        counts = tf.cast(places.row_lengths(), tf.int32)
        positions = places.to_tensor(0)  # [B, P]
        # One place at least, or there would be nothing to compute.
        positions = tf.pad(positions, [[0, 0], [0, tf.cast(tf.shape(positions)[1] == 0, tf.int32)]])
        logits = self.model({**tokens, "masked_positions": positions}, training=False)  # [B, P, V]
        probability, best = tf.math.top_k(tf.nn.softmax(logits), TOP_K)  # [B, P, K]
        exists = tf.sequence_mask(counts, tf.shape(positions)[1])[:, :, tf.newaxis]
        piece = tf.gather(tf.constant(self._tokenizer.vocabulary), best)
        return {
            "mask_count": counts,
            "piece": tf.where(exists, piece, ""),
            "probability": tf.where(exists, probability, 0.0),
        }
