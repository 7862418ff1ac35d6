"""The estimators in scikit-learn's own tools."""

import dataclasses
import pickle
import random

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn")
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from bert_tf import BertBackbone, BertTokenizer
from bert_tf.sklearn import TextClassifier, TextRegressor

TEXTS = ["good film", "bad film", "the good .", "the bad ."] * 8
LABELS = np.array([1, 0, 1, 0] * 8)
OPTIONS = {"options": {"max_length": 8, "dropout": 0.0, "pooling": "mean"}, "random_state": 5}
OPTIONS |= {"epochs": 12, "batch_size": 8, "learning_rate": 5e-3}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory, tiny_config, tiny_vocabulary):
    directory = tmp_path_factory.mktemp("checkpoint")
    one_block = dataclasses.replace(tiny_config, num_hidden_layers=1)
    BertBackbone(one_block).save_pretrained(directory)
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(directory)
    return str(directory)


@pytest.fixture
def estimator(checkpoint):
    return TextClassifier(checkpoint, **OPTIONS)


def test_learns_again_and_is_pickled(estimator):
    before = random.getstate(), np.random.get_state()[1].tolist()
    probabilities = estimator.fit(TEXTS, LABELS).predict_proba(TEXTS)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before
    assert estimator.score(TEXTS, LABELS) == 1.0 and estimator.classes_.tolist() == [0, 1]
    assert estimator.model_.labels == ["0", "1"] and probabilities.shape == (32, 2)
    copy = clone(estimator)
    assert not hasattr(copy, "model_") and copy.get_params() == estimator.get_params()
    again = copy.fit(TEXTS, LABELS).predict_proba(TEXTS)
    np.testing.assert_allclose(again, probabilities, atol=1e-5)
    opened = pickle.loads(pickle.dumps(estimator))
    np.testing.assert_allclose(opened.predict_proba(TEXTS), probabilities, atol=1e-6)
    opened.model_.threshold = 0.0
    assert opened.predict(TEXTS).tolist() == [1] * 32
    with pytest.raises(ValueError, match="1d"):
        estimator.fit(TEXTS, np.eye(2)[LABELS])


@pytest.mark.full
def test_searches_pipelines_and_calibration(estimator):
    estimator.set_params(epochs=1)
    lower = make_pipeline(FunctionTransformer(lambda x: [text.lower() for text in x]), estimator)
    search = GridSearchCV(lower, {"textclassifier__epochs": [1, 8]}, cv=2)
    names = np.array(["no", "yes"])[LABELS]
    assert search.fit(TEXTS, names).best_params_ == {"textclassifier__epochs": 8}
    assert search.predict(["good film"])[0] == "yes"
    calibrated = CalibratedClassifierCV(estimator, cv=2).fit(TEXTS, LABELS)
    np.testing.assert_allclose(calibrated.predict_proba(TEXTS).sum(axis=1), 1.0)


def test_numbers(checkpoint):
    numbers = LABELS * 2.0 - 1
    regressor = TextRegressor(checkpoint, **OPTIONS).fit(TEXTS, numbers)
    assert regressor.score(TEXTS, numbers) > 0.5
    assert regressor.predict(TEXTS).shape == (32,)
