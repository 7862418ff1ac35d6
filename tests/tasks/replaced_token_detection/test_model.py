"""BertReplacedTokenDetector: a label for every piece, texts that are cut, and errors."""

import numpy as np
import pytest

from bert_tf import BertBackbone, BertReplacedTokenDetector, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay


@pytest.fixture
def model(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    return BertReplacedTokenDetector(BertBackbone(tiny_config), tokenizer, max_length=8)


def test_learns_which_pieces_were_replaced(model):
    texts = ["the good film .", "the bad film .", "good film"] * 100
    labels = [[0, 0, 0, 0], [0, 1, 0, 0], [0, 0]] * 100
    model.compile(AdamWeightDecay(3e-3))
    history = model.fit(texts, labels, batch_size=8, epochs=3, verbose=0).history
    assert history["loss"][-1] < 0.1 and history["recall"][-1] > 0.9 < history["precision"][-1]
    scores = [piece.probability for piece in model.detect("the bad film .")]
    assert scores[1] > 0.9 and max(scores[0], *scores[2:]) < 0.1


def test_the_loss_is_the_mean_over_real_tokens(model):
    model.compile("sgd")
    texts, labels = ["the good film .", "bad"], [[0, 1, 0, 0], [1]]
    received = model.evaluate(texts, labels, verbose=0, return_dict=True)
    logits = model.predict(texts, verbose=0).astype(np.float64)
    rows = [(logits[0, :6], [0, 0, 1, 0, 0, 0]), (logits[1, :3], [0, 1, 0])]
    losses = [np.log1p(np.exp(x)) - x * y for x, y in rows]
    np.testing.assert_allclose(received["loss"], np.concatenate(losses).mean(), rtol=1e-5)
    hits = [(x > 0) == y for x, y in rows]
    np.testing.assert_allclose(received["accuracy"], np.concatenate(hits).mean(), rtol=1e-6)


def test_text_is_cut_with_its_labels(model):
    model.compile("sgd")
    long, cut = "a b c d e f g good bad", "a b c d e f"
    labels = [1, 0, 1, 0, 0, 1]
    losses = [
        model.evaluate([text], [row], verbose=0, return_dict=True)["loss"]
        for text, row in ((long, [*labels, 1, 0, 1]), (cut, labels))
    ]
    assert losses[0] == losses[1]
    assert model.detect(long) == model.detect(cut)
    assert [piece.piece for piece in model.detect([long])[0]] == cut.split()


def test_no_texts_and_empty_texts(model):
    assert model.detect([]) == []
    assert model.detect(["", "good"])[0] == []


@pytest.mark.parametrize(
    "labels, message",
    [
        (None, "list of 0 and 1 for each text.*y=None"),
        ([[0, 1]], "row for every text: 2. Received: 1 rows"),
        ([[0, 1], [0]], r"every piece of .*for text 1: 2 pieces, y=\[0\]"),
        ([[0, 1], [0, 2]], r"0 or 1 .*for text 1: 2 pieces, y=\[0, 2\]"),
        ([[0, "x"], [0, 1]], r"0 or 1 .*for text 0: 2 pieces, y=\[0, 'x'\]"),
    ],
)
def test_wrong_labels_are_told(model, labels, message):
    model.compile("sgd")
    with pytest.raises(UserError, match=message):
        model.fit(["good film", "bad film"], labels, verbose=0)


def test_what_has_no_meaning_is_told(model):
    with pytest.raises(UserError, match="must have 1 texts"):
        model.detect([("good", "film")])
    for options in ({"loss": "mse"}, {"metrics": ["accuracy"]}):
        with pytest.raises(UserError, match="must be left out"):
            model.compile("sgd", **options)
