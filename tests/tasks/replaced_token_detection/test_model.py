"""BertReplacedTokenDetector: what it learns, its loss, texts that are cut, and errors."""

import numpy as np
import pytest

from bert_tf import BertBackbone, BertReplacedTokenDetector, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.training import AdamWeightDecay


@pytest.fixture
def model(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    return BertReplacedTokenDetector(BertBackbone(tiny_config), tokenizer, max_length=8)


@pytest.mark.full
def test_learns_which_tokens_were_replaced(model):
    texts = ["the good film .", "the bad film .", "good film"] * 100
    tokens = model.tokenize(texts)
    labels = np.int32(tokens["token_ids"] == model.tokenizer.token_to_id("bad"))
    model.compile(AdamWeightDecay(3e-3))
    history = model.fit(tokens, labels, batch_size=8, epochs=3, verbose=0).history
    assert history["loss"][-1] < 0.1 and history["recall"][-1] > 0.9 < history["precision"][-1]
    scores = [piece.probability for piece in model.detect("the bad film .")]
    assert scores[1] > 0.9 and max(scores[0], *scores[2:]) < 0.1


def test_the_loss_is_the_mean_over_real_labelled_tokens(model):
    model.compile("sgd")
    tokens = model.tokenize(["the good film .", "bad"])
    labels = np.array([[0, 0, 1, 0, 0, -100], [0, 1, 0, 1, 1, 1]])  # three are padding
    received = model.evaluate(tokens, labels, verbose=0, return_dict=True)
    logits = model.predict(tokens, verbose=0).astype(np.float64)
    rows = [(logits[0, :5], labels[0, :5]), (logits[1, :3], labels[1, :3])]
    losses = [np.log1p(np.exp(x)) - x * y for x, y in rows]
    np.testing.assert_allclose(received["loss"], np.concatenate(losses).mean(), rtol=1e-5)
    hits = [(x > 0) == y for x, y in rows]
    np.testing.assert_allclose(received["accuracy"], np.concatenate(hits).mean(), rtol=1e-6)


def test_pieces_that_are_cut_off_have_no_score(model):
    long, cut = "a b c d e f g good bad", "a b c d e f"
    assert model.detect(long) == model.detect(cut)
    assert [piece.piece for piece in model.detect([long])[0]] == cut.split()


@pytest.mark.parametrize("side", ["left", "middle"])
def test_scores_belong_to_the_pieces_that_are_kept(model, side):
    model.tokenizer.truncation_side = side
    long = "a b c d e f g good bad"
    kept = [model.tokenizer.vocabulary[i] for i in model.tokenize([long])["token_ids"][0, 1:-1]]
    pieces = model.detect(long)
    assert [piece.piece for piece in pieces] == kept != long.split()[:6]
    assert [long[piece.start : piece.end] for piece in pieces] == kept
    scores = [piece.probability for piece in model.detect(" ".join(kept))]
    np.testing.assert_allclose([piece.probability for piece in pieces], scores, rtol=1e-5)


def test_no_texts_and_empty_texts(model):
    assert model.detect([]) == []
    assert model.detect(["", "good"])[0] == []
    assert model.detect([""]) == [[]]


@pytest.mark.parametrize("labels", [None, [[0, 1], [0]], [0, 1]])
def test_texts_are_no_data_to_train_on(model, labels):
    texts = ["good film", "film"]
    for function in (model.fit, model.evaluate):
        with pytest.raises(UserError, match="must be token dictionaries .* Received: texts"):
            function(texts, labels, verbose=0)
    with pytest.raises(UserError, match="must be token dictionaries"):
        model.fit((batch for batch in [(np.array(texts), np.zeros([2, 4]))]), verbose=0)
    tokens = model.tokenize(texts)
    with pytest.raises(UserError, match="must be token dictionaries"):
        model.fit(tokens, np.zeros([2, 4]), validation_data=(texts, labels), verbose=0)


def test_what_has_no_meaning_is_refused(model):
    with pytest.raises(UserError, match="must have 1 texts"):
        model.detect([("good", "film")])
    with pytest.raises(UserError, match="`y` must be labels"):
        model.fit(model.tokenize(["good film"]), verbose=0)
    for options in ({"loss": "mse"}, {"metrics": ["accuracy"]}):
        with pytest.raises(UserError, match="must be left out"):
            model.compile("sgd", **options)
