"""Static embeddings from a sentence encoder: a vector for each token, as model2vec makes them.

Each token goes through the encoder by itself. Texts are then means of the vectors of their tokens,
without any network.

Glossary: `V` tokens, `n` tokens that get a vector, `H` size of the encoder's vectors, `D` of the
static ones.

Reference: model2vec 0.10, `distill`; Arora et al. 2017, "A simple but tough-to-beat baseline for
sentence embeddings" (SIF), with frequencies by Zipf's law.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.base.json_schema import is_integer
from bert_tf.config import BertConfig
from bert_tf.errors import UserError, require
from bert_tf.layers.vector_projection import principal_directions
from bert_tf.models.backbone import BertBackbone
from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder
from bert_tf.text.tokenizer import BertTokenizer

_UNUSED = re.compile(r"\[unused\d+\]")
_MAX_LENGTH = 512 + 2  # model2vec's, and the two tokens around a text
_ROWS_AT_ONCE = 1024  # limits the memory


def distill_static(
    encoder: Any,
    vocabulary: Sequence[str] | None = None,
    pca_dims: int | None = 256,
    sif_coefficient: float | None = 1e-4,
    verbose: int = 0,
) -> BertSentenceEncoder:
    """Returns a sentence encoder that is a table of vectors, distilled from another encoder.

    The vector of a token is the mean of the last block's outputs for `[CLS] token [SEP]`. It is
    projected to the principal directions of all vectors, and multiplied by
    `sif_coefficient / (sif_coefficient + p)`, where p is the token's frequency: the vocabulary is
    taken to be sorted by frequency, and p to be proportional to 1 / rank. Special tokens and
    `[unused…]` have zeros. The new encoder does not read `[CLS]`, `[SEP]` and `[UNK]`, and
    scales vectors to length 1. It can be trained with `fit`, and `save_pretrained` writes a
    directory that model2vec and sentence-transformers open.

    Args:
        encoder: A `BertSentenceEncoder` with a tokenizer, or another model with a backbone and a
            tokenizer. Its pooling, projection and prompts have no effect.
        vocabulary: Words that become tokens in addition to those of a `BertTokenizer`.
        pca_dims: D. None keeps all H dimensions as they are.
        sif_coefficient: In (0, 1). None means no weights.
        verbose: 1 shows progress.

    Returns:
        The static encoder. Except for the vectors `[n, H]` and `[V, D]`, memory does not grow with
        the vocabulary.

    Raises:
        UserError: If there is no tokenizer, an argument is out of range, or `vocabulary` has
            something else than single words or is for another tokenizer than a `BertTokenizer`.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("reviews/")
        >>> static = bert_tf.adapt.distill_static(encoder, pca_dims=8)
        >>> static.encode(["A quiet film.", ""]).shape
        (2, 8)
    """
    fits = sif_coefficient is None or 0 < sif_coefficient < 1
    require(fits, "must be in (0, 1), or None", UserError, sif_coefficient=sif_coefficient)
    encoder.preprocessor.require_tokenizer()
    old, size = encoder.tokenizer, encoder.backbone.config.hidden_size
    fits = pca_dims is None or (is_integer(pca_dims) and 1 <= pca_dims <= size)
    rule = f"must be in [1, {size}], the size of the encoder's vectors, or None"
    require(fits, rule, UserError, pca_dims=pca_dims)
    words = _new_words(old, vocabulary or ())
    tokenizer = old
    if words:
        config = old.get_config()
        tokenizer = type(old).from_config(config | {"vocabulary": config["vocabulary"] + words})

    ends = old.cls_token_id, old.sep_token_id
    dropped = {*ends, old.mask_token_id}
    kept = [
        index
        for index, piece in enumerate(old.vocabulary)
        if index not in dropped and not _UNUSED.fullmatch(piece)
    ]
    ids = np.stack(np.broadcast_arrays(ends[0], kept, ends[1]), axis=1).astype(np.int32)  # [n, 3]
    tokens = {"token_ids": ids, "padding_mask": np.ones(ids.shape, bool)}
    plain = BertSentenceEncoder(encoder.backbone, tokenizer=old)
    vectors = plain.predict(tokens, batch_size=_ROWS_AT_ONCE, verbose=verbose)
    if words:
        vectors = np.concatenate([vectors, plain.encode(words, verbose=verbose)])
    if pca_dims is not None:
        vectors = _projected(vectors, pca_dims)
    if sif_coefficient is not None:
        shares = 1 / np.arange(2, len(vectors) + 2)  # Matches model2vec: ranks begin at 2.
        weights = sif_coefficient / (sif_coefficient + shares / shares.sum())
        vectors *= weights[:, np.newaxis].astype(np.float32)

    table = np.zeros([tokenizer.vocab_size, vectors.shape[1]], np.float32)
    kept = [old.vocabulary[index] for index in kept] + words
    table[[tokenizer.token_to_id(piece) for piece in kept]] = vectors
    # sentence-transformers reads it too: so it changes a length, but no direction.
    table[tokenizer.unk_token_id] = 0
    config = BertConfig.static(
        vocab_size=len(table),
        hidden_size=table.shape[1],
        pad_token_id=tokenizer.pad_token_id,
        ignored_token_ids=sorted({*ends, tokenizer.unk_token_id}),
        extra={"apply_pca": pca_dims, "sif_coefficient": sif_coefficient},
    )
    backbone = BertBackbone(config)
    backbone.embeddings.word_embeddings.assign(table)
    backbone.pooler.is_missing = True
    return BertSentenceEncoder(
        backbone, normalize=True, tokenizer=tokenizer, max_length=_MAX_LENGTH
    )


def _new_words(tokenizer, vocabulary) -> list[str]:
    """Returns the words, normalized, that are no pieces of a tokenizer."""
    rule = "must be None for a tokenizer that is no `BertTokenizer`"
    fits = not vocabulary or isinstance(tokenizer, BertTokenizer)
    require(fits, rule, UserError, vocabulary=vocabulary)
    words = dict.fromkeys(tokenizer.as_detokenized(word.strip()) for word in vocabulary)
    wrong = [word for word in words if len(word.split()) != 1]
    require(not wrong, "must be single words", UserError, vocabulary=wrong[:10])
    return [word for word in words if word not in {*tokenizer.vocabulary}]


def _projected(vectors, pca_dims) -> np.ndarray:
    """Returns `[n, H]` in the first principal directions, `[n, D]`, the largest values positive."""
    mean, _, directions = principal_directions(vectors)
    most = directions.shape[1]
    rule = f"must be at most {most}, the number of directions in which the vectors vary, or None"
    require(pca_dims <= most, rule, UserError, pca_dims=pca_dims)
    projected = np.empty([len(vectors), pca_dims], np.float32)
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        projected[rows] = (vectors[rows] - mean) @ directions[:, :pca_dims]
    ends = np.stack([projected.max(axis=0), -projected.min(axis=0)])
    projected *= np.where(ends[0] >= ends[1], 1, -1)
    return projected
