"""BertTokenClassifier: words in, tags and spans out, with and without a CRF."""

import dataclasses
import json
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertTokenClassifier, BertTokenizer
from bert_tf.errors import UserError
from bert_tf.inputs.labels import IGNORED
from bert_tf.tasks.token_classification import TaggedSpan, TaggingScores, tagging_scores
from bert_tf.training import AdamWeightDecay, SparseCrossentropy, balanced_class_weights

LABELS = ["O", "B-X", "I-X", "B-Y", "I-Y"]


def planted(count, seed, longest=12, continued=True):
    """Sentences in which `good` opens a span X and `bad` a Y, and `film` continues what is open.

    Which one that is, only the tag before says.
    """
    generator = random.Random(seed)
    opened = {"good": "B-X", "bad": "B-Y"}
    sentences, tags = [], []
    for _ in range(count):
        words = generator.choices(["the", "good", "film", "bad", "abc", "."], k=longest)
        row = []
        for word in words:
            before = row[-1] if row else "O"
            continues = continued and word == "film" and before != "O"
            row.append("I" + before[1:] if continues else opened.get(word, "O"))
        sentences.append(words)
        tags.append(row)
    return sentences, tags


@pytest.fixture(scope="module")
def make_model(tiny_config, tiny_vocabulary):
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )

    def make(run_eagerly=False, **options):
        keras.utils.set_random_seed(5)
        model = BertTokenClassifier(
            BertBackbone(config),
            **{"labels": LABELS, "tokenizer": BertTokenizer(tiny_vocabulary), **options},
        )
        optimizer = AdamWeightDecay(5e-3, learning_rate_multipliers={"crf": 10.0})
        model.compile(optimizer, run_eagerly=run_eagerly)
        return model

    return make


@pytest.fixture(scope="module")
def trained(make_model):
    model = make_model(use_crf=True, max_length=16)
    dev = planted(40, seed=2)
    scores = TaggingScores(*dev, restore_best_weights=True)
    history = model.fit(
        *planted(200, seed=1),
        batch_size=16,
        epochs=6,
        validation_data=dev,
        callbacks=[scores],
        verbose=0,
    ).history
    assert len(history["val_f1"]) == len(history["val_accuracy"]) == 6
    assert scores.best_score == max(history["val_f1"]), history
    return model


def test_learns_planted_spans(trained, make_model):
    sentences, tags = planted(100, seed=3, longest=40)  # several windows each
    assert tagging_scores(tags, trained.predict_tags(sentences))["f1"] > 0.95
    results = trained.evaluate(sentences, tags, verbose=0, return_dict=True)
    assert results["accuracy"] > 0.95
    plain = make_model()
    plain.fit(*planted(200, seed=1, continued=False), batch_size=16, epochs=3, verbose=0)
    sentences, tags = planted(100, seed=3, longest=40, continued=False)
    assert tagging_scores(tags, plain.predict_tags(sentences))["f1"] > 0.95
    assert plain.evaluate(sentences, tags, verbose=0, return_dict=True)["accuracy"] > 0.95


def test_spans_have_offsets(trained):
    text = "The  the goód film. abc Bad."
    expected = [TaggedSpan(9, 18, "X", "goód film"), TaggedSpan(24, 27, "Y", "Bad")]
    assert trained.tag(text) == trained.tag(text.encode()) == expected
    assert trained.tag([text, "", "the"]) == [expected, [], []]
    words = ["the", "good", "film"]
    assert trained.tag([words, []]) == [[TaggedSpan(1, 3, "X", "good film")], []]
    assert trained.tag([]) == []


def test_labels_that_are_no_spans(make_model):
    model = make_model(labels=["n", "v"], run_eagerly=True)
    (spans,) = model.tag([["good", "film"]])
    assert [(span.start, span.end, span.text) for span in spans] == [(0, 1, "good"), (1, 2, "film")]
    assert {span.label for span in spans} <= {"n", "v"}
    scores = TaggingScores([["good", "film"]], [["n", "v"]])
    scores.set_model(model)
    logs = {}
    scores.on_epoch_end(0, logs)
    assert list(logs) == ["val_word_accuracy"] and scores.best_score == logs["val_word_accuracy"]


def test_batches_do_not_matter(trained):
    sentences, _ = planted(30, seed=4, longest=25)
    expected = trained.predict_tags(sentences)
    assert trained.predict_tags(sentences, batch_size=3) == expected
    assert trained.predict_tags(sentences, token_budget=20) == expected
    one_by_one = [trained.predict_tags([words])[0] for words in sentences[:3]]
    assert one_by_one == expected[:3]


@pytest.mark.parametrize("use_crf", [False, True])
def test_loss_is_the_mean_over_words_however_cut(make_model, use_crf):
    sentences, tags = planted(8, seed=6)
    sentences, tags = (
        [s[: 3 + i] for i, s in enumerate(sentences)],
        [t[: 3 + i] for i, t in enumerate(tags)],
    )
    weights = np.linspace(0.5, 2.0, 8)

    def loss(model):
        return model.evaluate(
            sentences, tags, sample_weight=weights, batch_size=8, verbose=0, return_dict=True
        )["loss"]

    model = make_model(use_crf=use_crf, run_eagerly=True)
    if use_crf:
        model.crf.set_weights(
            [np.random.default_rng(1).normal(size=v.shape) for v in model.crf.variables]
        )
    total = words = 0.0
    for sentence, row, weight in zip(sentences, tags, weights):
        one = model.evaluate([sentence], [row], verbose=0, return_dict=True)["loss"]
        total += one * len(row) * weight
        words += len(row) * weight
    np.testing.assert_allclose(loss(model), total / words, rtol=1e-5)


def test_other_losses_are_means_over_words_too(make_model, tmp_path):
    sentences, tags = planted(8, seed=6)
    weights = balanced_class_weights([LABELS.index(tag) for row in tags for tag in row], 5)
    loss = SparseCrossentropy(label_smoothing=0.2, focal_gamma=1.5, class_weights=weights)
    model = make_model()
    model.compile(AdamWeightDecay(5e-3), loss=loss)
    total = 0.0
    for sentence, row in zip(sentences, tags):
        tokens = model.tokenize([" ".join(sentence)])  # "abc" has three pieces
        firsts = [0]
        for word in sentence[:-1]:
            firsts.append(firsts[-1] + (3 if word == "abc" else 1))
        logits = tf.gather(model(tokens)[0], 1 + np.array(firsts))
        total += float(tf.reduce_sum(loss.call([LABELS.index(tag) for tag in row], logits)))
    mean = model.evaluate(sentences, tags, batch_size=3, verbose=0, return_dict=True)["loss"]
    assert abs(mean - total / 96) < 1e-4
    model.fit(*planted(150, seed=1, continued=False), epochs=3, verbose=0)
    test = planted(30, seed=4, continued=False)
    assert tagging_scores(test[1], model.predict_tags(test[0]))["f1"] > 0.95
    model.save(tmp_path / "model.keras")
    opened = keras.saving.load_model(tmp_path / "model.keras")
    assert opened.loss.get_config() == loss.get_config()


def test_saved_as_huggingface_does(trained, tmp_path):
    trained.save_pretrained(tmp_path)
    opened = BertTokenClassifier.from_pretrained(tmp_path)
    assert (opened.labels, opened.use_crf, opened.max_length) == (LABELS, True, 16)
    opened.run_eagerly = True
    sentences, _ = planted(10, seed=8)
    assert opened.predict_tags(sentences) == trained.predict_tags(sentences)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["BertForTokenClassification"]
    assert config["id2label"] == {str(i): label for i, label in enumerate(LABELS)}
    # Without its CRF the file is an ordinary token classifier.
    assert BertTokenClassifier.from_pretrained(tmp_path, use_crf=False).crf is None


def test_token_dictionaries(make_model):
    model = make_model(run_eagerly=True)
    tokens = {name: value.numpy() for name, value in model.tokenize(["good film", "bad"]).items()}
    labels = np.array([[IGNORED, 1, 2, IGNORED], [IGNORED, 0, IGNORED, IGNORED]], np.int32)
    model.evaluate(tokens, labels, verbose=0)
    assert model.predict(tokens, verbose=0).shape == (2, 4, 5)
    assert model(tf.constant(["good film"])).shape == (1, 4, 5)


def test_mistakes_are_refused(make_model):
    model = make_model(run_eagerly=True)
    with pytest.raises(UserError, match="sentence 1: 2 words, 1 tags"):
        model.fit([["a"], ["a", "b"]], [["O"], ["O"]])
    with pytest.raises(UserError, match="sentence 0: 'B-Z'"):
        model.evaluate([["a"]], [["B-Z"]])
    with pytest.raises(UserError, match="1 sentences, no lists"):
        model.fit([["a"]])
    with pytest.raises(UserError, match="`tag` finds"):
        model.predict(["a text"])
    with pytest.raises(UserError, match="lists of words"):
        model.fit(["a text"], ["O"])
    with pytest.raises(UserError, match="SparseCrossentropy.*Received: loss='mse'"):
        model.compile(loss="mse")
    with pytest.raises(UserError, match="`metrics` must be left out: the acc"):
        model.compile(metrics=["accuracy"])
    with pytest.raises(UserError, match="over the paths of a sentence.*use_crf=True"):
        make_model(use_crf=True).compile(loss=SparseCrossentropy(label_smoothing=0.1))
    for labels in (["O"], ["O", "O"], None):
        with pytest.raises(UserError, match="two different"):
            make_model(labels=labels)
    with pytest.raises(UserError, match="same sentences"):
        tagging_scores([["O"]], [["O", "O"]])


@pytest.mark.peers
def test_equals_transformers(make_model, tmp_path):
    transformers = pytest.importorskip(
        "transformers", reason="needs transformers and PyTorch", exc_type=ImportError
    )
    import torch

    ours = make_model()
    ours.save_pretrained(tmp_path / "ours")
    theirs = transformers.BertForTokenClassification.from_pretrained(tmp_path / "ours").eval()
    tokens = {name: value.numpy() for name, value in ours.tokenize(["good film", "bad"]).items()}
    with torch.no_grad():
        logits = theirs(
            input_ids=torch.tensor(tokens["token_ids"]).long(),
            attention_mask=torch.tensor(tokens["padding_mask"]).long(),
            token_type_ids=torch.tensor(tokens["segment_ids"]).long(),
        ).logits.numpy()
    mask = tokens["padding_mask"]
    expected = ours.predict(tokens, verbose=0)
    np.testing.assert_allclose(logits[mask], expected[mask], atol=1e-5)
    assert theirs.config.id2label == dict(enumerate(LABELS))
    theirs.save_pretrained(tmp_path / "theirs")
    opened = BertTokenClassifier.from_pretrained(tmp_path / "theirs")
    assert opened.labels == LABELS
    np.testing.assert_allclose(opened.predict(tokens, verbose=0), expected, atol=1e-6)
