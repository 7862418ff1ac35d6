"""The threshold of a classifier: in `classify`, in files and in its signatures."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.config import MULTI_LABEL
from bert_tf.errors import UserError
from bert_tf.tasks.text_classification.serving import TextClassificationModule

TEXTS = ["good film", "bad film", "the good.", "the bad."]


@pytest.fixture(scope="module")
def make(tiny_config, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    return lambda **options: BertTextClassifier(
        BertBackbone(tiny_config), tokenizer=tokenizer, **options
    )


def served(model):
    tokens = model.tokenize(tf.constant(TEXTS))
    return [
        label.decode()
        for label in TextClassificationModule(model).of_tokens(tokens)["label"].numpy()
    ]


def test_two_classes(make, tmp_path):
    model = make(labels=["bad", "good"])
    good = [answer.scores["good"] for answer in model.classify(TEXTS)]
    middle = float(np.sort(good)[1:3].mean())
    expected = ["good" if value >= middle else "bad" for value in good]
    assert sorted(set(expected)) == ["bad", "good"]
    found = model.classify(TEXTS, threshold=middle)
    assert [answer.label for answer in found] == expected
    assert [answer.scores["good"] for answer in found] == good
    assert (
        model.classify(TEXTS[0], threshold=1.0).label
        == "bad"
        == model.classify(TEXTS, as_frame=True, threshold=1.0)["predicted_label"][0]
    )
    assert model.threshold is None and len(set(served(model))) == 1

    model.threshold = middle
    assert [answer.label for answer in model.classify(TEXTS)] == expected == served(model)
    assert TextClassificationModule(model).details()["threshold"] == middle
    model.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert opened.threshold == middle and served(opened) == expected
    assert BertTextClassifier.from_pretrained(tmp_path, labels=["a", "b"]).threshold is None


def test_several_labels(make):
    model = make(labels=["a", "b", "c"], problem_type=MULTI_LABEL, threshold=0.0)
    assert model.classify(TEXTS[0]).labels == ("a", "b", "c")
    assert model.classify(TEXTS[0], threshold=1.0).labels == ()


@pytest.mark.parametrize("threshold", [1.5, float("nan"), "best", np.float32(0.5)])
def test_no_probabilities(make, threshold):
    model = make(labels=["bad", "good"])
    with pytest.raises(UserError, match=r"`threshold` must be in \[0, 1\]"):
        model.threshold = threshold
    assert model.threshold is None


@pytest.mark.parametrize("options", [{"num_classes": 3}, {"num_classes": 1}])
def test_what_has_no_threshold(make, options):
    with pytest.raises(UserError, match="for two classes or several labels"):
        make(**options, threshold=0.5)
    with pytest.raises(UserError, match="for two classes or several labels"):
        make(**options).classify(TEXTS, threshold=0.5)
