"""MiniLM's similarities of real sentences: those of PyTorch, in float32 and nearly so in int8."""

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

import bert_tf
from research.corpora.film_reviews import read_film_reviews

pytestmark = [pytest.mark.full, pytest.mark.peers]

TEXTS = 600


@pytest.fixture(scope="module")
def reviews(materials):
    """Texts in the order of the file, so of few films, and the film of each."""
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts, _, films = zip(*read_film_reviews(path)[:TEXTS])
    return list(texts), np.array(films)


def by_pytorch(minilm, texts):
    import torch
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm)
    model = transformers.AutoModel.from_pretrained(minilm).eval()
    parts = []
    for start in range(0, len(texts), 64):
        tokens = tokenizer(
            texts[start : start + 64],
            padding=True,
            truncation=True,
            max_length=256,
            return_tensors="pt",
        )
        with torch.no_grad():
            states = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        means = (states * mask).sum(1) / mask.sum(1)
        parts.append(torch.nn.functional.normalize(means, dim=1).numpy())
    return np.concatenate(parts)


def test_similarities(minilm, reviews):
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="needs transformers and PyTorch")
    texts, films = reviews
    first, second = np.triu_indices(len(texts), 1)
    same = films[first] == films[second]

    def similarities(vectors):
        return (vectors @ vectors.T)[first, second]

    theirs = similarities(by_pytorch(minilm, texts))
    model = bert_tf.BertSentenceEncoder.from_pretrained(minilm)
    ours = similarities(model.encode(texts))
    np.testing.assert_allclose(ours, theirs, atol=2e-6, rtol=0)
    model.quantize("int8")
    whole = similarities(model.encode(texts))

    scores = [roc_auc_score(same, values) for values in (theirs, ours, whole)]
    ranks = [spearmanr(values, theirs).statistic for values in (ours, whole)]
    print("area under the curve of `same film`: PyTorch, ours, int8", scores)
    print("Spearman's correlation with PyTorch: ours, int8", ranks)
    assert abs(scores[1] - scores[0]) < 1e-5
    assert ranks[0] > 0.999999
    assert abs(scores[2] - scores[0]) < 0.005
    assert ranks[1] > 0.998
