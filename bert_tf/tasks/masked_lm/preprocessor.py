"""What `BertMaskedLM` reads and answers: texts to be masked, and texts with masks to be filled.

Glossary: `n` texts, `R` rows, `B` rows of a batch, `T` its length, `M` masks of all texts, `P`
masks of a row, `V` vocabulary.
"""

import itertools
import random
from collections.abc import Iterable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import numpy_function
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.masking import SPANBERT_SPANS, check_masking, mask_tokens, num_to_predict
from bert_tf.inputs.token_rows import TokenizedTexts, TokenRows, batches_of_numbers, parallel_map
from bert_tf.inputs.traced import SPLITS, traced
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.serving_module import ServingModule
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


_ROWS_OF_PASS = 1 << 40  # more than any pass has


def mask_texts(
    texts: tf.data.Dataset,
    tokenizer: BertTokenizer,
    max_length: int,
    masked_lm_prob: float = 0.15,
    masking: str = "token",
    seed: int = 0,
    fresh: bool = True,
) -> tf.data.Dataset:
    """Tokenizes batches of texts and hides tokens of them.

    Args:
        texts: Batches `[B]` of strings, or of pairs (firsts, seconds).
        tokenizer: The `BertTokenizer`.
        max_length: Longer rows are cut.
        masked_lm_prob: The share of tokens to mask.
        masking: "token", "whole_word" (pieces that belong together) or "span"; see `mask_tokens`.
        seed: The masks are a function of it, of the pass and of the row's place in the pass.
        fresh: Whether every pass over the dataset draws other masks; False for evaluation.

    Returns:
        A dataset of (features, labels): `token_ids`, `segment_ids` int32 `[B, T]`, `padding_mask`
        bool `[B, T]`, `masked_positions` int32 `[B, P]`; `masked_ids` int32 and `masked_weights`
        float32 `[B, P]`.

    Raises:
        ConfigError: If the tokenizer has no mask token, or an argument has an invalid value.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer("vocab.txt")
        >>> batches = tf.data.Dataset.from_tensor_slices(["the bad film"] * 64).batch(32)
        >>> masked = bert_tf.tasks.masked_lm.mask_texts(batches, tokenizer, max_length=128)
        >>> features, labels = next(iter(masked))
        >>> labels["masked_ids"].shape
        TensorShape([32, 19])
    """
    passes = itertools.count()

    def this_pass(_):
        number = numpy_function(lambda: np.int64(next(passes) if fresh else 0), [], tf.int64)
        return tf.data.Dataset.from_tensors(tf.ensure_shape(number, [])).repeat()

    def number_rows(count, element):
        """Numbers the rows by the pass and their place in it."""
        strings, number = element
        end = count + tf.size(tf.nest.flatten(strings)[0], tf.int64)
        return end, (strings, number * _ROWS_OF_PASS + tf.range(count, end))

    numbers = tf.data.Dataset.range(1).flat_map(this_pass)
    numbers = numbers.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
    rows = tf.data.Dataset.zip(texts, numbers).scan(tf.zeros([], tf.int64), number_rows)
    options = _options(tokenizer, max_length, masked_lm_prob, masking)

    def mask(strings, streams):
        tokens = tokenizer(*tf.nest.flatten(strings), max_length=max_length)
        word_starts = tokenizer.word_starts(tokens["token_ids"])
        return features_and_labels(_masked(tokens, streams, seed, word_starts, **options))

    return parallel_map(rows, _also_for_no_rows(mask, rows.element_spec)).prefetch(tf.data.AUTOTUNE)


class RowsToMask(TokenRows):
    """Rows of tokens in memory, of which `batch` masks some.

    The masks of a row are a function of the seed and of the row's number. The numbers i, n + i and
    so on are the same of n texts with other masks.

    Raises:
        ConfigError: If the tokenizer has no mask token.
    """

    def __init__(self, texts: TokenizedTexts, tokenizer: BertTokenizer, max_length: int, seed: int):
        self._texts = texts
        self._mask = _masked_eagerly(**_options(tokenizer, max_length))
        self._seed = tf.constant(seed, tf.int64)

    def lengths(self):
        return self._texts.lengths()

    def batch(self, rows, length=None):
        """Returns features and labels of the rows `[B]`, by name."""
        tokens = self._texts.batch(rows % max(len(self._texts), 1), length)
        tokens = {name: tf.constant(values) for name, values in tokens.items()}
        masked = self._mask(tokens, tf.constant(rows), self._seed)
        return {name: values.numpy() for name, values in masked.items()}


def features_and_labels(masked: dict[str, tf.Tensor]) -> tuple[dict, dict]:
    """Returns a batch of masked rows as the features and the labels of a masked language model."""
    labels = {name: masked.pop(name) for name in ("masked_ids", "masked_weights")}
    return masked, labels


def _options(tokenizer, max_length, masked_lm_prob=0.15, masking="token"):
    """Returns the arguments by name of `_masked` for the rows of a tokenizer."""
    tokenizer.require_mask_token()
    max_predictions = int(num_to_predict(max_length, masked_lm_prob, max_length))
    check_masking(masking, masked_lm_prob, max_predictions, SPANBERT_SPANS)
    names = ("cls_token_id", "sep_token_id", "pad_token_id", "mask_token_id")
    return {
        "special_ids": tuple(getattr(tokenizer, name) for name in names),
        "mask_token_id": tokenizer.mask_token_id,
        "vocab_size": tokenizer.vocab_size,
        "max_predictions": max_predictions,
        "masked_lm_prob": masked_lm_prob,
        "masking": masking,
    }


def _masked(tokens, streams, seed, word_starts=None, *, special_ids, vocab_size, **options):
    """Returns tokens `[B, T]` with masks, and what is hidden, by name; see `mask_tokens`."""
    token_ids, padding_mask = tokens["token_ids"], tokens["padding_mask"]
    special = np.zeros(vocab_size, bool)  # [V]
    special[list(special_ids)] = True
    maskable = padding_mask & ~tf.gather(special, token_ids)
    lengths = tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1)
    options |= {"seed": seed, "vocab_size": vocab_size, "word_starts": word_starts}
    return {**tokens, **mask_tokens(token_ids, maskable, lengths, streams, **options)._asdict()}


_TOKENS = dict.fromkeys(("token_ids", "segment_ids"), tf.TensorSpec([None, None], tf.int32))
_TOKENS["padding_mask"] = tf.TensorSpec([None, None], tf.bool)
_masked_eagerly = traced(_masked, [_TOKENS, SPLITS, tf.TensorSpec([], tf.int64)])


def _also_for_no_rows(function, spec):
    """Returns a function of batches `[B]` that also takes B = 0.

    It lets `function` compute a row of zeros, without which there is no length to pad to.
    """
    if tf.nest.flatten(spec)[0].shape[0] is not None:  # B is known
        return function

    def call(*tensors):
        count = tf.size(tf.nest.flatten(tensors)[0])
        paddings = [[0, tf.cast(count == 0, tf.int32)]]
        tensors = tf.nest.map_structure(
            lambda v: tf.pad(v, paddings) if v.shape.rank else v, tensors
        )
        return tf.nest.map_structure(lambda v: v[:count], function(*tensors))

    return call
