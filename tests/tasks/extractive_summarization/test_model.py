"""BertSentenceExtractor: documents in, summaries out."""

import dataclasses
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceExtractor, BertTokenizer
from bert_tf.errors import DataError, UserError
from bert_tf.tasks.extractive_summarization.preprocessor import ExtractiveSummarizationModule
from bert_tf.training import AdamWeightDecay


def planted(count, seed, sizes=(1, 8)):
    """Documents whose summary is the sentences with `good`, at most two."""
    generator = random.Random(seed)
    documents, labels = [], []
    for _ in range(count):
        size = generator.randint(*sizes)
        best = set(generator.sample(range(size), min(size, 2)))
        documents.append(
            [
                " ".join([*generator.choices("abcdef", k=4), "good" if i in best else "bad"]) + "."
                for i in range(size)
            ]
        )
        labels.append([int(i in best) for i in range(size)])
    return documents, labels


def extracts(documents, labels):
    """The labelled sentences, joined."""
    pairs = zip(documents, labels)
    return [" ".join(np.array(sentences, object)[np.array(row) > 0]) for sentences, row in pairs]


@pytest.fixture(scope="module")
def model(tiny_config, tiny_vocabulary):
    """Trained on documents of several windows each."""
    keras.utils.set_random_seed(5)
    config = dataclasses.replace(
        tiny_config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    model = BertSentenceExtractor(
        BertBackbone(config),
        num_sentences=2,
        tokenizer=BertTokenizer(tiny_vocabulary),
        max_length=18,
    )
    model.compile(AdamWeightDecay(2e-3))  # at 5e-3 most seeds learn nothing
    documents, labels = planted(150, seed=1)
    model.fit(documents, extracts(documents, labels), batch_size=8, epochs=3, verbose=0)
    return model


@pytest.mark.full
def test_learns_planted_sentences(model):
    documents, labels = planted(50, seed=2, sizes=(6, 20))
    assert model.evaluate(documents, labels, verbose=0)[1] > 0.95
    expected = extracts(documents, labels)
    summaries = model.summarize(documents, trigram_blocking=False)
    assert np.mean([one == other for one, other in zip(summaries, expected)]) > 0.9
    texts = [" ".join(document) for document in documents]
    assert model.summarize(texts, trigram_blocking=False) == summaries


def test_summaries_and_labels_are_the_same_training_data(model):
    documents, labels = planted(20, seed=3)
    ways = [labels, extracts(documents, labels), [np.array(row, bool) for row in labels]]
    losses = [model.evaluate(documents, way, verbose=0)[0] for way in ways]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-5)
    (one,) = documents[:1]
    alone = model.evaluate(" ".join(one), extracts([one], labels[:1])[0], verbose=0)
    np.testing.assert_allclose(alone, model.evaluate([one], labels[:1], verbose=0), rtol=1e-5)


def test_loss_is_the_mean_over_sentences(model):
    documents, labels = planted(7, seed=4)
    weights = np.arange(1.0, 8.0)
    outputs = model.predict(documents, verbose=0)
    sizes = np.diff(outputs["row_splits"])
    assert sizes.tolist() == list(map(len, documents))
    each = np.logaddexp(0.0, np.where(np.concatenate(labels) > 0, -1, 1) * outputs["logits"])
    weights_of_sentences = np.repeat(weights, sizes)
    expected = np.average(each, weights=weights_of_sentences)
    received = model.evaluate(documents, labels, sample_weight=weights, batch_size=99, verbose=0)
    np.testing.assert_allclose(received[0], expected, rtol=1e-4)


def test_short_and_empty_documents(model):
    assert model.summarize("a bad film.") == "a bad film."
    assert model.summarize(["", "bad. good.", " \n "], num_sentences=9) == ["", "bad. good.", ""]
    assert model.summarize([[], ["good.", "", "bad."]]) == ["", "good. bad."]
    assert model.summarize("") == "" and model.summarize([]) == []
    # The best one, but all in the text's order. The sentences are as long as those it learned.
    good, bad, other = "a b c d good.", "b c d e bad.", "c d e f bad."
    for document in ([good, bad, other], [other, bad, good]):
        text = " ".join(document)
        assert model.summarize(text, num_sentences=1) == good
        assert model.summarize(text, num_sentences=3, trigram_blocking=False) == text
    repeated = "a b c good. a b c good! e f."
    one_of_both = ("a b c good. e f.", "a b c good! e f.")  # which one, the scores say
    assert model.summarize(repeated, num_sentences=3) in one_of_both
    everything = model.summarize(repeated, num_sentences=3, trigram_blocking=False)
    assert everything == repeated


def test_served_as_summarized(model):
    """Documents of several windows, of one and without sentences."""
    documents, _ = planted(6, seed=6, sizes=(1, 15))
    texts = [" ".join(document) for document in documents] + ["", "good.\n\n bad one"]
    outputs = ExtractiveSummarizationModule(model).of_text(tf.constant(texts))
    outputs = {name: values.numpy() for name, values in outputs.items()}
    assert [text.decode() for text in outputs["summary"]] == model.summarize(texts)
    logits = model.predict(texts, verbose=0)
    for row, count in enumerate(outputs["sentence_count"]):
        numbers = outputs["sentence_number"][row, :count]
        found = logits["logits"][logits["row_splits"][row] + numbers]
        np.testing.assert_allclose(
            outputs["sentence_score"][row, :count], 1 / (1 + np.exp(-found)), rtol=1e-4
        )
        sentences = outputs["sentence_text"][row, :count]
        assert b" ".join(sentences) == outputs["summary"][row]


def test_strings_are_tokenized_in_the_call(model):
    texts = ["a good. b bad.", "c bad."]
    logits = model(tf.constant(texts))
    outputs = model.predict(texts, verbose=0)
    # [CLS] a good . [SEP] [CLS]
    received = [logits[0, 0], logits[0, 5], logits[1, 0]]
    np.testing.assert_allclose(received, outputs["logits"], rtol=1e-4)


DOCUMENTS = [["a.", "b."], ["c."]]


@pytest.mark.parametrize(
    ("x", "y", "error", "message"),
    [
        (DOCUMENTS, None, UserError, "Received: y=None"),
        (DOCUMENTS, ["a."], UserError, "2 documents, 1 rows"),
        (DOCUMENTS, [[1, 0], [1, 0]], UserError, "document 1 with 1 sentences"),
        (DOCUMENTS, [[1, 2], [1]], UserError, "document 0 with 2 sentences"),
        (DOCUMENTS, [[1, 0], "c"], UserError, "document 1 with 1 sentences: 'c'"),
        (DOCUMENTS, [[1, 0], 1], UserError, "`y\\[1\\]` must be a list"),
        (DOCUMENTS, ["a.", None], DataError, "missing values"),
        (["a. b.", None], ["a.", "b."], DataError, "missing values"),
        ([["a."], "b."], ["a.", "b."], UserError, "document 1: 'b.'"),
        ([["a."], None], ["a.", "b."], DataError, "missing values"),
        ([["a.", None]], ["a."], DataError, "`x\\[0\\]` must have a value"),
        ([["a.", 5]], ["a."], DataError, "row 1: 5"),
        ((["a."], ["b."]), [[1], [1]], None, None),
        ([""], [""], UserError, "at least one sentence"),
        ([("a.", "b.")], ["a."], None, None),
    ],
)
def test_examples(model, x, y, error, message):
    if error is None:
        assert np.isfinite(model.evaluate(x, y, verbose=0)[0])
    else:
        with pytest.raises(error, match=message):
            model.fit(x, y, verbose=0)


def test_bad_arguments(model):
    for value in (0, True, 1.5):
        with pytest.raises(UserError, match="`num_sentences` must be an integer of at least 1"):
            model.summarize(["a."], num_sentences=value)
        with pytest.raises(UserError, match="`num_sentences` must be an integer of at least 1"):
            BertSentenceExtractor(model.backbone, num_sentences=value)
    for value in (-1, True, 1.5):
        with pytest.raises(UserError, match="`num_sentence_layers` must be an integer of at le"):
            BertSentenceExtractor(model.backbone, num_sentence_layers=value)
    with pytest.raises(UserError, match="A list of strings, or a list of lists|1 texts"):
        model.summarize(("a.", "b."))
    dataset = tf.data.Dataset.from_tensor_slices(["a.", "b."]).batch(2)
    with pytest.raises(UserError, match="a list of texts"):
        model.predict(dataset)
    with pytest.raises(UserError, match="must be given together"):
        model.fit(dataset.map(lambda texts: (texts, texts)))
    with pytest.raises(UserError, match="`window_stride` must be None"):
        model.predict(["a."], window_stride=2)
    with pytest.raises(UserError, match="an example has several labels"):
        model.fit(DOCUMENTS, [[1, 0], [1]], class_weight={0: 2.0})
    other = BertSentenceExtractor(model.backbone)
    with pytest.raises(UserError, match="`metrics` must be left out"):
        other.compile(metrics=["accuracy"])
    with pytest.raises(UserError, match="without a tokenizer"):
        other.summarize(["a."])
