"""bert_tf/adapt/few_shot.py: pairs, the head next to scikit-learn's, and topics with MiniLM."""

import numpy as np
import pytest

import bert_tf
from bert_tf.adapt import few_shot_pairs, fit_few_shot
from bert_tf.errors import UserError
from tests.search.test_exact_search import TOPICS

TEXTS = ["a good film", "so good", "the good .", "a bad film", "so bad", "film", "a a ."]
LABELS = ["good", "good", "good", "bad", "bad", "other", "other"]


@pytest.mark.parametrize("ids", [[0, 0, 1, 1, 2], [0, 1], [5] * 9 + [7]])
def test_pairs(ids):
    pairs, targets = few_shot_pairs(ids, num_pairs=3, seed=1)
    ids = np.array(ids)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    np.testing.assert_array_equal(ids[pairs[:, 0]] == ids[pairs[:, 1]], targets == 1)
    for number, class_id in enumerate(ids):
        own = pairs[:, 0] == number
        has_other = np.count_nonzero(ids == class_id) > 1
        assert np.count_nonzero(own & (targets == 0)) == 3
        assert np.count_nonzero(own & (targets == 1)) == (3 if has_other else 0)
    assert few_shot_pairs(ids, 3, seed=1)[0].tolist() == pairs.tolist()
    assert len(ids) < 3 or few_shot_pairs(ids, 3, seed=2)[0].tolist() != pairs.tolist()


@pytest.fixture
def make_classifier(tiny_config, tiny_vocabulary):
    def make(**options):
        tokenizer = bert_tf.BertTokenizer(tiny_vocabulary)
        options = {"labels": ["bad", "good", "other"], "pooling": "mean", **options}
        backbone = bert_tf.BertBackbone(tiny_config)
        return bert_tf.BertTextClassifier(backbone, tokenizer=tokenizer, **options)

    return make


@pytest.mark.usefixtures("eager_steps")
@pytest.mark.parametrize(
    "labels, pooling",
    [
        (["bad", "good", "other"], "mean"),
        (["bad", "good"], "mean_max"),
        pytest.param(["bad", "good", "other"], "mean_max", marks=pytest.mark.full),
        pytest.param(["bad", "good"], "mean", marks=pytest.mark.full),
    ],
)
def test_the_head_is_the_logistic_regression_of_the_vectors(make_classifier, labels, pooling):
    from sklearn.linear_model import LogisticRegression

    classifier = make_classifier(labels=labels, pooling=pooling)
    rows = [row for row, label in enumerate(LABELS) if label in labels]
    texts, names = ([column[row] for row in rows] for column in (TEXTS, LABELS))
    before = [variable.numpy() for variable in classifier.backbone.trainable_variables]
    history = fit_few_shot(
        classifier, texts, names, num_pairs=4, learning_rate=1e-3, epochs=2, C=5.0, verbose=0
    )
    assert history.history["loss"][1] < history.history["loss"][0]
    after = [variable.numpy() for variable in classifier.backbone.trainable_variables]
    assert any(np.abs(new - old).max() > 1e-4 for new, old in zip(after, before))
    encoder = bert_tf.BertSentenceEncoder(
        classifier.backbone, pooling, tokenizer=classifier.tokenizer
    )
    vectors = encoder.encode(texts)
    expected = LogisticRegression(C=5.0, max_iter=1000).fit(vectors, names)
    assert expected.classes_.tolist() == labels
    probabilities = classifier.probabilities(classifier.predict(texts, verbose=0))
    np.testing.assert_allclose(probabilities, expected.predict_proba(vectors), atol=1e-4)


@pytest.mark.usefixtures("eager_steps")
def test_the_classifier_is_like_any_other(make_classifier, tmp_path):
    classifier = make_classifier()
    fit_few_shot(classifier, TEXTS, LABELS, num_pairs=1, verbose=0)
    logits = classifier.predict(TEXTS, verbose=0)
    classifier.save_pretrained(tmp_path / "saved")
    opened = bert_tf.BertTextClassifier.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(opened.predict(TEXTS, verbose=0), logits, atol=1e-5)
    classifier.require_trained_heads("exported")
    classifier.fit(TEXTS, LABELS, verbose=0)


@pytest.mark.parametrize(
    "options,labels,words",
    [
        ({"pooling": "cls"}, LABELS, "`pooling` of `classifier` must be one of"),
        ({"pooling": "last"}, LABELS, "`pooling` of `classifier` must be one of"),
        ({"use_scalar_mix": True}, LABELS, "only a dense layer on pooled vectors.*scalar_mix"),
        ({"lstm_units": 4}, LABELS, "only a dense layer on pooled vectors.*lstm"),
        ({"both_orders": True}, LABELS, "only a dense layer on pooled vectors.*both_orders"),
        ({}, ["good"] * 7, "each class of the classifier.*bad"),
        ({}, LABELS[:5], "as many as `labels`"),
        ({"problem_type": "multi_label_classification"}, [], "`problem_type` of `classifier`"),
    ],
)
def test_what_has_no_meaning_is_refused(make_classifier, options, labels, words):
    with pytest.raises(UserError, match=words):
        fit_few_shot(make_classifier(**options), TEXTS, labels)


def test_other_errors(make_classifier, tiny_config):
    with pytest.raises(UserError, match="must be single texts"):
        fit_few_shot(make_classifier(), (TEXTS, TEXTS), LABELS)
    with pytest.raises(UserError, match="must be a BertTextClassifier"):
        fit_few_shot(bert_tf.BertBackbone(tiny_config), TEXTS, LABELS)
    with pytest.raises(UserError, match="`C` must be positive"):
        fit_few_shot(make_classifier(), TEXTS, LABELS, C=0)
    with pytest.raises(UserError, match="`num_pairs` must be an integer"):
        fit_few_shot(make_classifier(), TEXTS, LABELS, num_pairs=0)
    with pytest.raises(UserError, match="must have two classes"):
        few_shot_pairs([1, 1])


@pytest.mark.full
def test_two_sentences_of_each_topic(minilm):
    """MiniLM learns what a topic is from two sentences of each, and finds that of the others."""
    names = ["animals", "economy", "cooking"]
    classifier = bert_tf.BertTextClassifier.from_pretrained(minilm, labels=names, pooling="mean")
    texts = [text for topic in TOPICS for text in topic[:2]]
    fit_few_shot(classifier, texts, np.repeat(names, 2).tolist(), num_pairs=4, verbose=0)
    found = classifier.classify([text for topic in TOPICS for text in topic[2:]])
    assert [answer.label for answer in found] == np.repeat(names, 2).tolist()
