"""Texts with masks, new ones in every epoch: what a masked language model learns from.

For text files in documents, `pretraining_text` has more to offer: pairs, packing, resuming.

Glossary: `B` rows, `T` sequence length, `P` masked positions, `V` vocabulary size.
"""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.inputs.masking import SPANBERT_SPANS, check_masking, mask_tokens, num_to_predict
from bert_tf.inputs.token_rows import parallel_map
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
    return mask_rows(rows, tokenizer, max_length, masked_lm_prob, masking, seed)


def mask_rows(
    rows: tf.data.Dataset,
    tokenizer: BertTokenizer,
    max_length: int,
    masked_lm_prob: float = 0.15,
    masking: str = "token",
    seed: int = 0,
) -> tf.data.Dataset:
    """Returns what `mask_texts` does, of rows with numbers of their own.

    Args:
        rows: Batches of texts, as `mask_texts` takes them, and int64 `[B]`, of which the masks of a
            row are a function, with the seed.
        tokenizer, max_length, masked_lm_prob, masking, seed: See `mask_texts`.

    Raises:
        ConfigError: See `mask_texts`.
    """
    tokenizer.require_mask_token()
    max_predictions = int(num_to_predict(max_length, masked_lm_prob, max_length))
    check_masking(masking, masked_lm_prob, max_predictions, SPANBERT_SPANS)
    special = np.zeros(tokenizer.vocab_size, bool)  # [V]
    special[[tokenizer.cls_token_id, tokenizer.sep_token_id]] = True
    special[[tokenizer.pad_token_id, tokenizer.mask_token_id]] = True
    starts = ~tokenizer.continues_word()

    # No branch depends on a tensor, and AutoGraph takes longer to find that out than tracing takes.
    @tf.autograph.experimental.do_not_convert
    def mask(strings, streams):
        tokens = tokenizer(*tf.nest.flatten(strings), max_length=max_length)
        token_ids, padding_mask = tokens["token_ids"], tokens["padding_mask"]
        masked = mask_tokens(
            token_ids,
            padding_mask & ~tf.gather(special, token_ids),
            tf.reduce_sum(tf.cast(padding_mask, tf.int32), axis=1),
            streams,
            seed=seed,
            mask_token_id=tokenizer.mask_token_id,
            vocab_size=tokenizer.vocab_size,
            max_predictions=max_predictions,
            masked_lm_prob=masked_lm_prob,
            masking=masking,
            word_starts=tf.gather(starts, token_ids),
        )
        inputs = {"token_ids": masked.token_ids, "masked_positions": masked.masked_positions}
        labels = {"masked_ids": masked.masked_ids, "masked_weights": masked.masked_weights}
        return {**tokens, **inputs}, labels

    batches = parallel_map(rows, _also_for_no_rows(mask, rows.element_spec))
    return batches.prefetch(tf.data.AUTOTUNE)


def _also_for_no_rows(function, spec):
    """Returns a function of batches `[B]` that also takes B = 0, as a replica may have no rows.

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
