"""`BertTextClassifier.zero_shot`: the pairs it makes and the probabilities, by plain loops."""

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.errors import UserError

TEXTS = ["good film", "the bad film .", "a"]
LABELS = ["good", "bad .", "film"]
NLI = ["contradiction", "entailment", "neutral"]


@pytest.fixture(scope="module")
def make_classifier(tiny_config, tiny_vocabulary):
    def make(labels, **options):
        tokenizer = bert_tf.BertTokenizer(tiny_vocabulary, lowercase=False)
        backbone = bert_tf.BertBackbone(tiny_config)
        return bert_tf.BertTextClassifier(backbone, labels=labels, tokenizer=tokenizer, **options)

    return make


@pytest.mark.parametrize(
    "names,entailment,wrong",
    [
        (NLI, 1, 0),
        (["ENTAILMENT", "NEUTRAL", "CONTRADICTION"], 0, 2),
        (["contradiction", "neutral", "entailment"], 2, 0),
        (["entailment", "not_entailment"], 0, 1),
    ],
)
def test_probabilities(make_classifier, names, entailment, wrong):
    model = make_classifier(names)
    template = "the {} ."
    one, several = (
        model.zero_shot(TEXTS, LABELS, template, multi_label, batch_size=4)
        for multi_label in (False, True)
    )
    for text, best, found in zip(TEXTS, one, several):
        pairs = [text] * len(LABELS), [template.format(label) for label in LABELS]
        scores = np.exp(model.predict(pairs, verbose=0).astype(np.float64))
        expected = scores[:, entailment] / scores[:, entailment].sum()
        assert list(best.scores) == LABELS
        np.testing.assert_allclose(list(best.scores.values()), expected, rtol=1e-5)
        assert best.labels == (LABELS[int(expected.argmax())],)
        expected = scores[:, entailment] / (scores[:, entailment] + scores[:, wrong])
        np.testing.assert_allclose(list(found.scores.values()), expected, rtol=1e-5)
        assert found.labels == tuple(x for x, p in zip(LABELS, expected) if p >= 0.5)
    alone = model.zero_shot(TEXTS[0], LABELS, template)
    np.testing.assert_allclose(list(alone.scores.values()), list(one[0].scores.values()), rtol=1e-5)
    assert model.zero_shot([], LABELS) == []


@pytest.mark.parametrize(
    "labels,options,words",
    [
        (LABELS, {"hypothesis_template": "no place"}, r"`hypothesis_template` must have one \{\}"),
        (LABELS, {"hypothesis_template": "{} {}"}, r"`hypothesis_template` must have one \{\}"),
        ("good", {}, "`candidate_labels` must be a list of different texts"),
        ([], {}, "`candidate_labels` must be a list of different texts"),
        (["a", "a"], {}, "`candidate_labels` must be a list of different texts"),
        (["a", 1], {}, "`candidate_labels` must be a list of different texts"),
    ],
)
def test_what_has_no_meaning_is_refused(make_classifier, labels, options, words):
    with pytest.raises(UserError, match=words):
        make_classifier(NLI).zero_shot(TEXTS, labels, **options)


def test_other_classifiers_are_refused(make_classifier):
    for names, options in (
        (["bad", "good"], {}),
        (["entailment", "entailed"], {}),
        (["entailment", "x"], {"problem_type": "multi_label_classification"}),
    ):
        with pytest.raises(UserError, match="trained on natural language inference"):
            make_classifier(names, **options).zero_shot(TEXTS, LABELS)
    with pytest.raises(UserError, match="`texts` must be single texts"):
        make_classifier(NLI).zero_shot((TEXTS, TEXTS), LABELS)


def test_the_exported_signature(make_classifier, tmp_path):
    model = make_classifier(["ENTAILMENT", "NEUTRAL", "CONTRADICTION"])
    loaded = tf.saved_model.load(model.export(tmp_path / "pairs", pairs=True))
    templates, rows = ["the {} .", "{}", "a {}"], [LABELS, LABELS[:1], LABELS[1:]]

    def call(count):
        labels = [(row + ["", ""])[:3] for row in rows[:count]]
        given = (TEXTS[:count], tf.reshape(tf.constant(sum(labels, []), tf.string), [-1, 3]))
        names = ("text", "candidate_labels", "hypothesis_template")
        given = map(tf.constant, (*given, templates[:count]))
        return loaded.signatures["zero_shot"](**dict(zip(names, given)))

    outputs = call(3)
    for name, several in (("probabilities", False), ("probabilities_alone", True)):
        for row, (text, labels, template) in enumerate(zip(TEXTS, rows, templates)):
            expected = list(model.zero_shot(text, labels, template, several).scores.values())
            expected += [0.0] * (3 - len(labels))
            np.testing.assert_allclose(outputs[name][row], expected, atol=1e-6)
    templates[1] = "no place"
    with pytest.raises(tf.errors.InvalidArgumentError, match="`hypothesis_template` must have one"):
        call(3)
    single = tf.saved_model.load(model.export(tmp_path / "single"))
    other = make_classifier(["bad", "good"]).export(tmp_path / "other", pairs=True)
    assert "zero_shot" not in {*single.signatures, *tf.saved_model.load(other).signatures}
