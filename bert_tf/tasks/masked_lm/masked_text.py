"""Texts with masks, new ones in every epoch: what a masked language model learns from.

For text files in documents, `pretraining_text` has more to offer: pairs, packing, resuming.

Glossary: `B` rows, `T` sequence length, `P` masked positions, `V` vocabulary size.
"""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.inputs.masking import SPANBERT_SPANS, check_masking, mask_tokens, num_to_predict
from bert_tf.inputs.token_rows import TokenizedTexts, TokenRows, parallel_map
from bert_tf.inputs.traced import SPLITS, traced
from bert_tf.text.tokenizer import BertTokenizer

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
        number = tf.numpy_function(lambda: np.int64(next(passes) if fresh else 0), [], tf.int64)
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
    starts = ~tokenizer.continues_word()

    # No branch depends on a tensor, and AutoGraph takes longer to find that out than tracing takes.
    @tf.autograph.experimental.do_not_convert
    def mask(strings, streams):
        tokens = tokenizer(*tf.nest.flatten(strings), max_length=max_length)
        word_starts = tf.gather(starts, tokens["token_ids"])
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

    @tf.autograph.experimental.do_not_convert
    def call(*tensors):
        count = tf.size(tf.nest.flatten(tensors)[0])
        paddings = [[0, tf.cast(count == 0, tf.int32)]]
        tensors = tf.nest.map_structure(
            lambda v: tf.pad(v, paddings) if v.shape.rank else v, tensors
        )
        return tf.nest.map_structure(lambda v: v[:count], function(*tensors))

    return call
