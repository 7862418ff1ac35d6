"""Sentences with one token masked at a time: the inputs of a pseudo-log-likelihood.

Glossary: `n` sentences, `R` tokens of all of them, `B` rows of a batch, `T` its length.
"""

from collections.abc import Iterator

import numpy as np

from bert_tf.inputs.batches import TOKEN_BUDGET
from bert_tf.inputs.token_budget import token_batches
from bert_tf.text.tokenizer import BertTokenizer

# The feature that carries the token that the mask hides.
TARGET_IDS = "target_ids"


def one_mask_batches(
    ids: np.ndarray, lengths: np.ndarray, tokenizer: BertTokenizer, token_budget: int | None = None
) -> Iterator[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """Yields every sentence with each of its tokens hidden once; the longest sentences first.

    Args:
        ids, lengths: The tokens of the sentences end to end, without special ones, int `[R]`, and
            how many each sentence has, int `[n]`.
        tokenizer: Gives the special tokens.
        token_budget: Largest `B * T` of a batch; None as in `TaskModel.predict`.

    Yields:
        The places in `ids` of the tokens that are hidden, `[B]`, and the features: `token_ids`
        int32 `[B, T]`, `padding_mask` bool `[B, T]`, `masked_positions` and `target_ids` int32
        `[B, 1]`.
    """
    sentence = np.repeat(np.arange(len(lengths)), lengths)  # [R], the sentence of a token
    starts = np.cumsum(lengths) - lengths
    budget = token_budget or TOKEN_BUDGET
    order, splits, _ = token_batches(lengths[sentence] + 2, budget, padded=True)
    for start, end in zip(splits, splits[1:]):
        hidden = order[start:end]  # [B]
        length = lengths[sentence[hidden]][:, np.newaxis]  # [B, 1]
        first = starts[sentence[hidden]][:, np.newaxis]
        columns = np.arange(length.max() + 2)[np.newaxis]  # [1, T]
        inside = (columns >= 1) & (columns <= length)  # [B, T]
        places = np.where(inside, first + columns - 1, 0)
        token_ids = np.where(inside, ids[places], tokenizer.pad_token_id)
        token_ids[:, 0] = tokenizer.cls_token_id
        token_ids[columns == length + 1] = tokenizer.sep_token_id
        positions = hidden[:, np.newaxis] - first + 1  # [B, 1]
        np.put_along_axis(token_ids, positions, tokenizer.mask_token_id, axis=1)
        features = {
            "token_ids": token_ids.astype(np.int32),
            "padding_mask": columns < length + 2,
            "masked_positions": positions.astype(np.int32),
            TARGET_IDS: ids[hidden][:, np.newaxis].astype(np.int32),
        }
        yield hidden, features
