"""The signatures of every task give what the models' own methods give."""

import json
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from bert_tf import (
    BertBackbone,
    BertMaskedLM,
    BertMultipleChoice,
    BertNextSentencePredictor,
    BertPretrainer,
    BertQuestionAnswerer,
    BertSentenceEncoder,
    BertTextClassifier,
    BertTokenClassifier,
    BertTokenizer,
)
from bert_tf.errors import UserError
from bert_tf.serving import export
from bert_tf.serving.description import as_text
from bert_tf.serving.export import serving_module
from bert_tf.tasks.token_classification.tag_schemes import scheme_labels, spans_of_tags
from bert_tf.tasks.token_classification.word_windows import word_spans

WORDS = [
    "good",
    "bad",
    "film",
    "the",
    "Él",
    "naïve",
    "x",
    "abc",
    "10:30",
    "end.",
    "“y”",
    "電影",
    "…",
]


def some_text(source, longest):
    return " ".join(source.choice(WORDS) for _ in range(source.randint(0, longest)))


@pytest.fixture
def make(tiny_config, tiny_vocabulary):
    def make(model_class, **options):
        tf.keras.utils.set_random_seed(7)
        tokenizer = BertTokenizer(tiny_vocabulary)
        model = model_class(BertBackbone(tiny_config), tokenizer=tokenizer, **options)
        for variable in model.weights:  # so that not everything is the same answer
            if "classifier" in variable.path or "crf" in variable.path:
                variable.assign(tf.random.stateless_normal(variable.shape, seed=[3, 0]))
        return model

    return make


def rows_of(outputs, count, *names):
    """The first `count[b]` values of each row b of these outputs, as tuples."""
    columns = [outputs[name].numpy() for name in names]
    return [
        [tuple(_plain(value) for value in cell) for cell in zip(*(c[row][:n] for c in columns))]
        for row, n in enumerate(outputs[count].numpy())
    ]


def _plain(value):
    return value.decode() if isinstance(value, bytes) else value.item()


@pytest.mark.parametrize("allow_no_answer, n_best_size", [(False, 20), (False, 1), (True, 3)])
def test_answers(make, allow_no_answer, n_best_size):
    model = make(
        BertQuestionAnswerer,
        max_length=24,
        doc_stride=6,
        max_query_length=8,
        allow_no_answer=allow_no_answer,
        null_score_diff_threshold=0.5,
        n_best_size=n_best_size,
        max_answer_length=5,
    )
    source = random.Random(n_best_size)
    questions = [some_text(source, 6) for _ in range(12)] + ["the film", ""]
    contexts = [some_text(source, 60) for _ in range(12)] + ["", ""]
    outputs = serving_module(model).of_text(tf.constant(questions), tf.constant(contexts))
    selections = model.select(questions, contexts)
    n_best = rows_of(outputs, "n_best_count", "n_best_text", "n_best_start", "n_best_end")
    for row, (selection, answer) in enumerate(zip(selections, model.answer(questions, contexts))):
        expected = [(found.text, found.start, found.end) for found in selection.n_best]
        assert n_best[row] == expected
        np.testing.assert_allclose(
            outputs["n_best_score"][row][: len(expected)],
            [found.probability for found in selection.n_best],
            atol=1e-5,
        )
        assert outputs["answer"][row].numpy().decode() == answer.text
        assert (outputs["start"][row], outputs["end"][row]) == (answer.start, answer.end)
        np.testing.assert_allclose(outputs["score"][row], answer.score, atol=1e-5)
        np.testing.assert_allclose(
            outputs["score_difference"][row], selection.score_difference, atol=1e-4
        )
    assert any(answer for answer in model.answer(questions, contexts))


def test_entities(make):
    labels = scheme_labels(["PER", "LOC"], "BIOES")
    model = make(BertTokenClassifier, labels=labels, use_crf=True, max_length=14)
    source = random.Random(1)
    texts = [some_text(source, 30) for _ in range(12)] + ["", "abcdefghijklmnopqrstuvw good. x"]
    outputs = serving_module(model).of_text(tf.constant(texts))
    found = rows_of(
        outputs, "entity_count", "entity_start", "entity_end", "entity_label", "entity_text"
    )
    assert found == [[tuple(span) for span in spans] for spans in model.tag(texts)]
    assert max(map(len, found)) > 3


def test_a_tag_for_every_word_where_labels_are_no_spans(make):
    model = make(BertTokenClassifier, labels=["NOUN", "VERB", "."], max_length=14)
    texts = ["the good film.", "bad " * 30, ""]
    outputs = serving_module(model).of_text(tf.constant(texts))
    found = rows_of(
        outputs, "entity_count", "entity_start", "entity_end", "entity_label", "entity_text"
    )
    assert found == [[tuple(span) for span in spans] for spans in model.tag(texts)]


def test_spans_of_any_tags():
    labels = ["O", *(f"{p}-{n}" for p in "BIESMLU" for n in ("A", "C")), "B", "I"]
    source = random.Random(0)
    lengths = [source.randint(0, 12) for _ in range(300)]
    tags = [[source.randrange(len(labels)) for _ in range(length)] for length in lengths]
    flat = tf.constant([tag for row in tags for tag in row])
    row_ids = tf.repeat(tf.range(300, dtype=tf.int64), lengths)
    first, last, label = word_spans(labels, flat, row_ids)
    starts = np.cumsum([0, *lengths])
    expected = [
        (span.start + start, span.end - 1 + start, span.label.encode())
        for start, row in zip(starts, tags)
        for span in spans_of_tags([labels[tag] for tag in row])
    ]
    assert list(zip(first.numpy(), last.numpy(), label.numpy())) == expected


def test_pairs_and_examples(make, tmp_path):
    model = make(BertTextClassifier, labels=["no", "yes"], max_length=20)
    path = pathlib.Path(export(model, tmp_path, pairs=True))
    first, second = ["the film", "good"], ["bad.", ""]
    expected = model.predict((first, second), verbose=0)
    signatures = tf.saved_model.load(path).signatures
    given = {"text": tf.constant(first), "pair": tf.constant(second)}
    logits = signatures["serving_default"](**given)["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-5)
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={"text": _bytes_feature([text]), "pair": _bytes_feature([pair])}
            )
        ).SerializeToString()
        for text, pair in zip(first, second)
    ]
    logits = signatures["examples"](examples=tf.constant(examples))["logits"]
    np.testing.assert_allclose(logits, expected, atol=1e-5)

    # What the directory says about itself is what is in it.
    description = json.loads((path / "assets.extra" / "bert_tf.json").read_text())
    assert description["labels"] == ["no", "yes"] and description["portable"] is True
    for name, signature in signatures.items():
        said = description["signatures"][name]
        _, inputs = signature.structured_input_signature
        for side, specs in (("inputs", inputs), ("outputs", signature.structured_outputs)):
            assert set(said[side]) == set(specs)
            for field, facts in said[side].items():
                assert facts["dtype"] == specs[field].dtype.name
                assert facts["shape"][0] == -1 and facts["meaning"]
    assert "<- pair: string [?]" in as_text(description)
    assets = {file.name for file in (path / "assets").iterdir()}
    assert assets == {"vocab.txt", "tokenizer_config.json", "config.json", "labels.txt"}
    vocabulary = (path / "assets" / "vocab.txt").read_text().splitlines()
    assert vocabulary == model.tokenizer.vocabulary
    assert str(tmp_path).encode() not in (path / "saved_model.pb").read_bytes()
    check_warmup(path / "assets.extra" / "tf_serving_warmup_requests", signatures)


def check_warmup(path, signatures):
    """The warm-up requests are what TF Serving reads: fields 6, 1 of a PredictionLog, and run."""
    records = [record.numpy() for record in tf.data.TFRecordDataset([str(path)])]
    assert 0 < len(records) <= 1000
    for record in records:
        (log,) = [value for number, value in fields(record) if number == 6]
        (request,) = [value for number, value in fields(log) if number == 1]
        (spec,) = [value for number, value in fields(request) if number == 1]
        assert fields(spec) == [(3, b"serving_default")]
        inputs = {}
        for entry in [value for number, value in fields(request) if number == 2]:
            name, tensor = (value for _, value in fields(entry))
            proto = tensor_pb2.TensorProto.FromString(tensor)
            inputs[name.decode()] = tf.constant(tf.make_ndarray(proto))
        outputs = signatures["serving_default"](**inputs)
        assert outputs["logits"].shape[0] == len(inputs["text"])


def fields(message):
    """Numbers and values of a message whose fields all have lengths, read by protobuf's rules."""
    found = []
    while message:
        (tag, message), size, shift = (message[0], message[1:]), 0, 0
        assert tag & 7 == 2
        while True:
            byte, message = message[0], message[1:]
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append((tag >> 3, message[:size]))
        message = message[size:]
    return found


def test_vectors_and_masks(make):
    texts = ["the good film.", "", "Él naïve"]
    encoder = make(BertSentenceEncoder, max_length=20)
    outputs = serving_module(encoder).of_text(text=tf.constant(texts))
    np.testing.assert_allclose(outputs["vector"], encoder.encode(texts), atol=1e-5)

    model = make(BertMaskedLM, max_length=20)
    texts = ["the [MASK] film [MASK]", "[MASK]"]
    outputs = serving_module(model).of_text(tf.constant([*texts, "none"]))
    assert outputs["mask_count"].numpy().tolist() == [2, 1, 0]
    for row, masks in enumerate(model.fill_mask(texts)):
        for place, candidates in enumerate(masks):
            pieces = [piece.decode() for piece in outputs["piece"][row, place].numpy()]
            assert pieces == [candidate.piece for candidate in candidates]
            np.testing.assert_allclose(
                outputs["probability"][row, place],
                [candidate.probability for candidate in candidates],
                atol=1e-5,
            )


def test_next_sentence(make):
    model = make(BertNextSentencePredictor, max_length=20)
    first, second = ["the good film.", "bad"], ["Él naïve", "the film"]
    outputs = serving_module(model).of_text(text=tf.constant(first), pair=tf.constant(second))
    np.testing.assert_allclose(
        outputs["probability"], model.next_sentence_probability(first, second), atol=1e-5
    )


def test_choices(make, tmp_path):
    model = make(BertMultipleChoice, max_length=20)
    path = pathlib.Path(export(model, tmp_path))
    signatures = tf.saved_model.load(path).signatures
    prompts = ["the film", "", "Él"]
    choices = [["good end.", "bad", "x"], ["abc", "the film", "bad"], ["bad", "naïve …", ""]]
    expected = np.stack(
        [
            np.append(row, [-np.inf] * (3 - len(row)))
            for row in (
                model.predict(([prompt], [[text for text in texts if text]]), verbose=0)[0]
                for prompt, texts in zip(prompts, choices)
            )
        ]
    )
    outputs = signatures["serving_default"](
        prompt=tf.constant(prompts), choices=tf.constant(choices)
    )
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
    assert outputs["choice"].numpy().tolist() == expected.argmax(axis=1).tolist()
    assert outputs["probabilities"][2, 2] == 0.0
    np.testing.assert_allclose(outputs["probabilities"].numpy().sum(axis=1), 1.0, atol=1e-6)
    examples = [  # each with the choices that it has
        tf.train.Example(
            features=tf.train.Features(
                feature={
                    "prompt": _bytes_feature([prompt]),
                    "choices": _bytes_feature([text for text in texts if text]),
                }
            )
        ).SerializeToString()
        for prompt, texts in zip(prompts, choices)
    ]
    outputs = signatures["examples"](examples=tf.constant(examples))
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)
    tokens = model.tokenize(prompts, choices)
    is_choice = tf.constant(np.isfinite(expected))[..., tf.newaxis]
    outputs = signatures["tokens"](**{**tokens, "padding_mask": tokens["padding_mask"] & is_choice})
    np.testing.assert_allclose(outputs["logits"], expected, atol=1e-5)


def _bytes_feature(texts):
    values = [text.encode() for text in texts]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def test_what_cannot_be_exported_says_so(make, tmp_path):
    pretrainer = BertPretrainer(make(BertSentenceEncoder).backbone)
    with pytest.raises(UserError, match="Received: BertPretrainer"):
        export(pretrainer, tmp_path)
    with pytest.raises(UserError, match="pairs"):
        export(make(BertSentenceEncoder), tmp_path, pairs=True)
    assert not list(tmp_path.iterdir())


def test_a_prepacked_model_is_not_portable(make, tmp_path):
    model = make(BertSentenceEncoder)
    model.prepack_for_inference()
    with pytest.raises(UserError, match="portable=True"):
        export(model, tmp_path)
