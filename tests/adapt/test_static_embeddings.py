"""Distillation into static embeddings, compared with its definition in float64.

With a MiniLM of 808 pieces, the vectors of all tokens and of texts are those of model2vec 0.10 with
an error below 6e-5 (256 dimensions) and 5e-7 (no PCA), also with further words.
"""

import numpy as np
import pytest

import bert_tf
from bert_tf.adapt import distill_static
from bert_tf.errors import UserError
from bert_tf.text import SubwordTokenizer
from tests.text.subwords import unigram_definition

SIF = 1e-4


@pytest.fixture(scope="module")
def encoder(tiny_config, tiny_vocabulary):
    backbone = bert_tf.BertBackbone(tiny_config)
    tokenizer = bert_tf.BertTokenizer(tiny_vocabulary)
    return bert_tf.BertSentenceEncoder(backbone, "cls", normalize=True, tokenizer=tokenizer)


def mean_outputs(encoder, rows):
    """The mean output of each row of ids, `[n, H]`."""
    means = []
    for row in rows:
        tokens = {"token_ids": np.array([row]), "padding_mask": np.ones([1, len(row)], bool)}
        means.append(encoder.backbone(tokens)["sequence_output"][0].numpy().mean(axis=0))
    return np.array(means, np.float64)


def expected_table(encoder, words=(), pca_dims=None, sif_coefficient=SIF):
    """The table with a row for each token and word, by definition."""
    tokenizer = encoder.tokenizer
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    left_out = {tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]")}
    left_out |= {i for i, piece in enumerate(tokenizer.vocabulary) if piece.startswith("[unused")}
    kept = [index for index in range(tokenizer.vocab_size) if index not in left_out]
    rows = [[cls, index, sep] for index in kept]
    rows += [[cls, *ids, sep] for ids in tokenizer.tokenize(list(words)).to_list()] if words else []
    vectors = mean_outputs(encoder, rows)
    if pca_dims:
        centred = vectors - vectors.mean(axis=0)
        vectors = centred @ np.linalg.svd(centred, full_matrices=False)[2][:pca_dims].T
        vectors *= np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(pca_dims)])
    if sif_coefficient:
        frequencies = 1 / (np.arange(len(vectors)) + 2.0)
        frequencies /= frequencies.sum()
        vectors *= (sif_coefficient / (sif_coefficient + frequencies))[:, np.newaxis]
    table = np.zeros([tokenizer.vocab_size + len(words), vectors.shape[1]])
    table[[*kept, *range(tokenizer.vocab_size, len(table))]] = vectors
    table[tokenizer.unk_token_id] = 0
    return table


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"pca_dims": 8}, marks=pytest.mark.full),
        {"pca_dims": None},
        pytest.param({"pca_dims": 5, "sif_coefficient": None}, marks=pytest.mark.full),
        {"pca_dims": 8, "vocabulary": ["Films", "bad", "xyz ", "films"]},
    ],
)
def test_the_table(encoder, options, tmp_path):
    static = distill_static(encoder, **options)
    changes = {**options, "words": ["films", "xyz"] if "vocabulary" in options else []}
    changes.pop("vocabulary", None)
    expected = expected_table(encoder, **changes)
    table = static.backbone.embeddings.word_embeddings.numpy()
    np.testing.assert_allclose(table, expected, atol=1e-5 * np.abs(expected).max())
    texts = ["the good film.", "", "é☃", "Films xyz"]
    rows = static.tokenizer.tokenize(texts).to_list()
    rows = [[index for index in row if index != static.tokenizer.unk_token_id] for row in rows]
    means = np.array([expected[row].mean(axis=0) if row else 0 * expected[0] for row in rows])
    norms = np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    np.testing.assert_allclose(static.encode(texts), means / norms, atol=1e-4)
    static.save_pretrained(tmp_path / "static")
    again = bert_tf.BertSentenceEncoder.from_pretrained(tmp_path / "static")
    np.testing.assert_array_equal(again.encode(texts), static.encode(texts))


def test_another_tokenizer(encoder):
    pieces = [(piece, -1.0) for piece in ("▁a", "▁good", "▁film", "s", "▁", "x")]
    tokenizer = SubwordTokenizer(unigram_definition(pieces))
    config = bert_tf.BertConfig(**{**encoder.backbone.config.to_dict(), "pad_token_id": 1})
    other = bert_tf.BertSentenceEncoder(bert_tf.BertBackbone(config), tokenizer=tokenizer)
    static = distill_static(other, pca_dims=4)
    assert static.encode(["a good film", ""]).shape == (2, 4)
    with pytest.raises(UserError, match="`vocabulary` must be None for a tokenizer that is no"):
        distill_static(other, vocabulary=["good"], pca_dims=4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pca_dims": 33}, r"`pca_dims` must be in \[1, 32\]"),
        ({"pca_dims": 32}, "`pca_dims` must be at most 31, the number of directions"),
        ({"pca_dims": 0}, "`pca_dims` must be in"),
        ({"pca_dims": True}, "`pca_dims` must be in"),
        ({"sif_coefficient": 1.0}, r"`sif_coefficient` must be in \(0, 1\), or None"),
        ({"vocabulary": ["good film"], "pca_dims": 8}, "`vocabulary` must be single words"),
        ({"vocabulary": [" "], "pca_dims": 8}, "`vocabulary` must be single words"),
    ],
)
def test_bad_arguments(encoder, options, message):
    with pytest.raises(UserError, match=message):
        distill_static(encoder, **options)


def test_without_a_tokenizer(encoder):
    with pytest.raises(UserError, match="without a tokenizer"):
        distill_static(bert_tf.BertSentenceEncoder(encoder.backbone))
