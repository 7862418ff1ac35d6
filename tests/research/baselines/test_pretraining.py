"""The pre-training of the encoders, on film reviews: what it learns of text that it has not seen.

The text is real, so its words follow each other with the regularities of language. A language model
has to predict held-out words better than their frequencies do.
"""

import collections
import re

import numpy as np
import pytest

import bert_tf
from bert_tf.errors import DataError, UserError
from research.baselines import (
    BaselineBackbone,
    BaselineConfig,
    BidirectionalLanguageModel,
    NeuralLanguageModel,
    TokenRows,
    train_word_vectors,
)
from research.corpora.film_reviews import read_film_reviews
from tests.research.baselines.test_encoders import KINDS

NUM_REVIEWS, NUM_WORDS = 1500, 250
STEPS, ROWS = 80, 32
PASSES = 40


@pytest.fixture(scope="module")
def rows(materials, tmp_path_factory):
    """The rows to train on and held-out rows, with a vocabulary of the most frequent words."""
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    reviews = [text for text, _, _ in read_film_reviews(path)[:NUM_REVIEWS]]
    words = collections.Counter(re.findall(r"\w+|[^\w\s]", " ".join(reviews).lower()))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces += [word for word, _ in words.most_common(NUM_WORDS)]
    text = tmp_path_factory.mktemp("reviews") / "reviews.txt"
    text.write_text("\n\n".join(reviews), encoding="utf-8")
    tokenizer = bert_tf.BertTokenizer(pieces, lowercase=True)
    return TokenRows([text], tokenizer, max_length=24).split(0.1, seed=1)


def unigram_loss(training, held_out, directions):
    """The mean loss on the held-out words of their frequencies in training, one added to each."""
    counts = np.ones([training.tokenizer.vocab_size])
    for row in training.rows():
        np.add.at(counts, row[1:], 1)
        if directions == 2:
            np.add.at(counts, row[:-1], 1)
    losses = -np.log(counts / counts.sum())
    words = [row[1:] for row in held_out.rows()]
    words += [row[:-1] for row in held_out.rows()] if directions == 2 else []
    return np.mean(losses[np.concatenate(words)])


@pytest.mark.full
@pytest.mark.parametrize(
    ("model_class", "encoder"),
    [(NeuralLanguageModel, "nnlm"), (BidirectionalLanguageModel, "elmo")],
)
def test_a_language_model_beats_the_frequencies_of_words(model_class, encoder, rows):
    training, held_out = rows
    sizes = {**KINDS[encoder], "hidden_size": 32}
    if encoder == "elmo":
        sizes["intermediate_size"] = 48
    vocab_size = training.tokenizer.vocab_size
    config = BaselineConfig(vocab_size=vocab_size, kind=encoder, initializer_range=0.05, **sizes)
    model = model_class(BaselineBackbone(config))
    model.compile(bert_tf.training.AdamWeightDecay(1e-2, bias_correction=True))

    def labelled(part, seed=None):
        return part.batches(ROWS, seed).map(lambda tokens: (tokens, model.labels_of(tokens)))

    def loss():
        return model.evaluate(labelled(held_out), verbose=0, return_dict=True)["loss"]

    before = loss()
    assert before == pytest.approx(np.log(vocab_size), abs=0.1)
    model.fit(labelled(training, 0), steps_per_epoch=STEPS, verbose=0)
    baseline = unigram_loss(training, held_out, 2 if encoder == "elmo" else 1)
    assert loss() < baseline - 0.15


@pytest.mark.parametrize("kind", ["skip_gram", "cbow"])
def test_words_that_are_used_alike_have_similar_vectors(kind, rows):
    pytest.importorskip("gensim", reason="needs gensim: pip install gensim")
    training, _ = rows
    reports = []
    vectors, num_tokens = train_word_vectors(
        training,
        size=32,
        kind=kind,
        max_tokens=PASSES * training.num_tokens,
        report=lambda *progress: reports.append(progress),
    )
    assert vectors.shape == (training.tokenizer.vocab_size, 32) and vectors.dtype == np.float32
    assert num_tokens == PASSES * training.num_tokens
    assert all(tokens <= num_tokens for tokens, _ in reports)
    assert not vectors[training.tokenizer.pad_token_id].any()  # does not occur
    # Of 250 words, these two are used most alike; by chance each is the other's 125th nearest.
    places = [training.tokenizer.vocabulary.index(word) for word in ("film", "movie")]
    directions = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    for word, other in (places, places[::-1]):
        similarity = directions @ directions[word]
        assert np.sum(similarity[5:] > similarity[other]) <= 25
    again, _ = train_word_vectors(training, size=32, kind=kind, max_tokens=2000)
    np.testing.assert_array_equal(
        again, train_word_vectors(training, size=32, kind=kind, max_tokens=2000)[0]
    )


def test_word_vectors_end_in_time(rows):
    pytest.importorskip("gensim", reason="needs gensim: pip install gensim")
    _, num_tokens = train_word_vectors(rows[0], size=8, max_tokens=10**9, max_minutes=0.2 / 60)
    assert 0 < num_tokens < 10**7
    with pytest.raises(UserError, match="`kind` must be one of"):
        train_word_vectors(rows[0], size=8, kind="glove")


def test_rows_of_text(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a b\nc d e\n\nf\n\n\n g \n", encoding="utf-8")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]
    rows = TokenRows([text], bert_tf.BertTokenizer(pieces), max_length=5)
    found = ["".join(pieces[id] for id in row[1:-1]) for row in rows.rows()]
    assert found == ["abc", "de", "f", "g"] and rows.num_tokens == 15
    first, second = rows.split(0.99)
    assert (len(first), len(second)) == (1, 3)
    batch = next(iter(rows.batches(4)))
    assert batch["token_ids"].shape == (4, 5)
    np.testing.assert_array_equal(batch["padding_mask"], batch["token_ids"].numpy() != 0)
    order = [
        row.tolist()
        for row in rows.batches(1, seed=2)
        .take(8)
        .map(lambda x: x["token_ids"][0])
        .as_numpy_iterator()
    ]
    assert sorted(order[:4]) == sorted(order[4:]) and order[:4] != order[4:]
    with pytest.raises(UserError, match="`max_length` must be at least 3"):
        TokenRows([text], bert_tf.BertTokenizer(pieces), max_length=2)
    with pytest.raises(DataError, match="must be a UTF-8 text file"):
        TokenRows([tmp_path / "none.txt"], bert_tf.BertTokenizer(pieces), max_length=8)
    text.write_text("\n\n")
    with pytest.raises(DataError, match="`input_files` must hold text"):
        TokenRows([text], bert_tf.BertTokenizer(pieces), max_length=8)
    text.write_text("a\n")
    with pytest.raises(DataError, match="at least two rows to split"):
        TokenRows([text], bert_tf.BertTokenizer(pieces), max_length=8).split(0.5)


def test_a_language_model_needs_its_encoder():
    backbone = BaselineBackbone(BaselineConfig(vocab_size=30, hidden_size=8))
    for model_class, kind in ((NeuralLanguageModel, "nnlm"), (BidirectionalLanguageModel, "elmo")):
        with pytest.raises(UserError, match=f"`kind` of the backbone must be '{kind}'"):
            model_class(backbone)
