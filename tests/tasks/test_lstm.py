"""Task models with LSTMs before the head: the numbers, training, files, inference, refusals."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.adapt import DistillationModel, student_from_teacher
from bert_tf.checkpoints import opening
from bert_tf.errors import CheckpointError, UserError
from bert_tf.tasks.text_classification.cached_features import cached_features
from bert_tf.training import AdamWeightDecay
from tests.conformance.padding import at_tokens, moved
from tests.conformance.task import CLASSES, CONFIG, PAIRS, TEXTS, assert_same, encoded, tokenizer
from tests.layers.float64 import stacked_lstm

ENCODER = dataclasses.replace(CONFIG, num_hidden_layers=1, initializer_range=0.5)
TOKENS = encoded(TEXTS)
MASK = TOKENS["padding_mask"]
WORDS = np.where(MASK, TOKENS["token_ids"] % 2, -100).astype(np.int32)
QUESTIONS = encoded(TEXTS, PAIRS)
ENDS = np.stack([np.zeros(6), np.arange(1, 7) % 3], axis=1).astype(np.int32)
TRAINED = {
    "text": (bert_tf.BertTextClassifier, TOKENS, CLASSES),
    "words": (bert_tf.BertTokenClassifier, TOKENS, WORDS),
    "answers": (bert_tf.BertQuestionAnswerer, QUESTIONS, ENDS),
}
tasks = pytest.mark.parametrize("task", TRAINED)
# The blocks and the files are one code; tests/conformance trains and saves tagging with an LSTM.
text_first = pytest.mark.parametrize(
    "task",
    [pytest.param(name, marks=pytest.mark.full if name != "text" else ()) for name in TRAINED],
)


def make(task="text", config=ENCODER, seed=4, dtype=None, **options):
    keras.utils.set_random_seed(seed)
    kind = TRAINED[task][0]
    if task != "answers":
        options = {"num_classes": 2, "dropout": 0.0, **options}
    if task == "words":
        options = {"labels": ["O", "B-X"], **options}
    options = {"lstm_units": [5, 3], "tokenizer": tokenizer(), "max_length": 20, **options}
    return kind(bert_tf.BertBackbone(config, dtype=dtype), dtype=dtype, **options)


def dense(layer, inputs):
    return inputs @ np.float64(layer.kernel.numpy()) + layer.bias.numpy()


def of_rows(model, tokens):
    """Per text: what the LSTMs make of the encoder's vectors, and the final outputs, float64."""
    states = model.backbone(tokens)["sequence_output"].numpy().astype(np.float64)
    mask = tokens["padding_mask"]
    return [stacked_lstm(model.lstm.blocks, row[real]) for row, real in zip(states, mask)]


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("pooling", ["cls", "mean", "mean_max", "last"])
def test_text_against_the_formulas(pooling, bidirectional):
    model = make(pooling=pooling, lstm_bidirectional=bidirectional)
    assert not model.uses_pooler
    pooled = []
    for outputs, final in of_rows(model, TOKENS):
        mean, largest = outputs.mean(axis=0), outputs.max(axis=0)
        vectors = {"cls": final[0], "mean": mean, "last": outputs[-1]}
        pooled.append({**vectors, "mean_max": np.concatenate([mean, largest])}[pooling])
    expected = dense(model.classifier, np.array(pooled))
    np.testing.assert_allclose(model.predict(TOKENS, verbose=0), expected, atol=1e-5)


@tasks
def test_tokens_against_the_formulas(task):
    if task == "text":
        return
    model, tokens = make(task), TRAINED[task][1]
    logits = np.asarray(model.predict(tokens, verbose=0))
    if task == "answers":
        logits = logits.transpose(0, 2, 1)  # [B, 2, T] -> [B, T, 2]
    layer = model.classifier if task == "words" else model.span_classifier
    for row, real, (outputs, _) in zip(logits, tokens["padding_mask"], of_rows(model, tokens)):
        np.testing.assert_allclose(row[real], dense(layer, outputs), atol=1e-5)


@tasks
def test_padding_changes_nothing(task):
    """Wherever it is, and however many texts are in the batch."""
    model, (_, tokens, _) = make(task), TRAINED[task]
    rows, columns = moved(tokens, "right")
    expected = at_tokens(model(rows), tokens, columns)
    for side in ("left", "middle"):
        rows, columns = moved(tokens, side)
        assert_same(at_tokens(model(rows), tokens, columns), expected)
    for number, real in enumerate(tokens["padding_mask"][:2]):
        alone = {name: values[number : number + 1, real] for name, values in tokens.items()}
        others = {name: values[number : number + 1] for name, values in tokens.items()}
        found = np.asarray(model(others))
        found = found[:, real] if task == "words" else found
        found = found[..., real] if task == "answers" else found
        np.testing.assert_allclose(found, model(alone), atol=1e-5)


@text_first
def test_learns_and_is_saved(task, tmp_path):
    model, (kind, tokens, labels) = make(task), TRAINED[task]
    bert_tf.training.freeze_layers(model, -1)
    encoder = [weight.numpy() for weight in model.backbone.weights]
    before = [weight.numpy() for weight in model.lstm.weights]
    model.compile(AdamWeightDecay(0.05, bias_correction=True))
    losses = model.fit(tokens, labels, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.7 * losses[0]
    for weight, values in zip(model.backbone.weights, encoder, strict=True):
        np.testing.assert_array_equal(weight, values)
    for weight, values in zip(model.lstm.weights, before, strict=True):
        assert np.any(weight.numpy() != values), weight.path
    expected = model.predict(tokens, verbose=0)
    model.save_pretrained(tmp_path / "own", format="auto")
    assert (tmp_path / "own" / "bert_tf.json").exists()
    again = kind.from_pretrained(tmp_path / "own")
    assert again.untrained_heads == () and again.lstm_units == [5, 3] and again.lstm_bidirectional
    assert_same(again.predict(tokens, verbose=0), expected, 0.0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert_same(again.predict(tokens, verbose=0), expected, 0.0)
    for format in ("huggingface", "tf1", None):
        with pytest.raises(UserError, match="be 'bert_tf' for a .*no names for the weights .*lstm"):
            model.save_pretrained(tmp_path / "other", format=format)


@tasks
def test_a_new_lstm_on_a_checkpoint(task, tmp_path):
    """Files in other formats give the encoder; an LSTM of one direction comes back from ours."""
    bert_tf.BertBackbone(CONFIG).save_pretrained(tmp_path / "encoder")
    options = {"lstm_units": 4, "lstm_bidirectional": False}
    options |= {"labels": ["O", "B-X"]} if task == "words" else {}
    kind = TRAINED[task][0]
    model = kind.from_pretrained(tmp_path / "encoder", **options)
    assert "lstm" in model.untrained_heads and model.lstm_units == [4]
    assert model.lstm.width == 4 and len(model.lstm.weights) == 3
    model.save_pretrained(tmp_path / "own", format="bert_tf")
    again = kind.from_pretrained(tmp_path / "own")
    assert again.untrained_heads == () and not again.lstm_bidirectional
    for mine, theirs in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(CheckpointError, match=r"classifier.kernel: expected shape \[16, 2\]"):
        kind.from_pretrained(tmp_path / "own", lstm_units=None)


def test_a_file_that_claims_a_large_lstm(tmp_path):
    make().save_pretrained(tmp_path, format="bert_tf")
    path = tmp_path / "bert_tf.json"
    content = path.read_text()
    assert '"lstm_units": [' in content
    for units, message in (([60_000], "must fit the configuration"), ([0], r"lstm_units\[0\]")):
        values = json.loads(content)
        values["options"]["lstm_units"] = units
        path.write_text(json.dumps(values))
        with pytest.raises(CheckpointError, match=message):
            bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    assert opening.format_of(str(tmp_path)) == "bert_tf"


@pytest.mark.full
@pytest.mark.parametrize(
    "options",
    [{"jit_compile": True}, {"gradient_accumulation_steps": 3}, {"run_eagerly": True}],
    ids=str,
)
def test_a_step_is_the_same(options):
    """XLA, parts of the batch and eager steps make the weights that a plain step makes."""
    weights = []
    for given in ({}, options):
        model = make("words", use_crf=True)
        model.compile(AdamWeightDecay(0.01), **given)
        model.train_on_batch(TOKENS, WORDS)
        weights.append(model.get_weights())
    for mine, theirs in zip(*weights, strict=True):
        np.testing.assert_allclose(mine, theirs, atol=2e-5)


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["mixed_float16", "bfloat16"])
def test_mixed_precision(dtype):
    model = make("words", use_crf=True, dtype=dtype)
    model.compile(AdamWeightDecay(0.05, bias_correction=True))
    losses = model.fit(TOKENS, WORDS, epochs=10, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert model.predict(TOKENS, verbose=0).dtype == np.float32


@pytest.mark.usefixtures("eager_steps")
def test_inference():
    """The encoder gets other kernels; the LSTM keeps its weights and follows the encoder."""
    plain = make("words")
    expected = plain.predict(TOKENS, verbose=0)
    for precision, bound in (("float32", 1e-5), ("int8", 0.2)):
        model = make("words")
        model.set_weights(plain.get_weights())
        model.optimize_for_inference(precision)
        for mine, theirs in zip(model.lstm.weights, plain.lstm.weights, strict=True):
            assert mine.dtype == "float32"
            np.testing.assert_array_equal(mine, theirs)
        np.testing.assert_allclose(model.predict(TOKENS, verbose=0), expected, atol=bound)


@pytest.mark.full
@pytest.mark.parametrize("portable", [True, False], ids=["portable", "fused"])
def test_is_exported(portable, tmp_path):
    model = make(lstm_units=3)
    path = model.export(tmp_path / "text", portable=portable)
    outputs = tf.saved_model.load(path).signatures["serving_default"](text=tf.constant(TEXTS))
    np.testing.assert_allclose(outputs["logits"], model.predict(TEXTS, verbose=0), atol=1e-5)
    tagger = make("words", lstm_units=3, use_crf=True)
    path = tagger.export(tmp_path / "words", portable=portable)
    outputs = tf.saved_model.load(path).signatures["serving_default"](text=tf.constant(TEXTS))
    expected = tagger.tag(TEXTS)
    np.testing.assert_array_equal(outputs["entity_count"], [len(spans) for spans in expected])
    for labels, spans in zip(outputs["entity_label"].numpy(), expected):
        assert [label.decode() for label in labels[: len(spans)]] == [s.label for s in spans]


@pytest.mark.usefixtures("eager_steps")
def test_lora(tmp_path):
    model = make()
    model.enable_lora(rank=2)
    model.save_lora_weights(tmp_path / "lora.safetensors")
    other = make(seed=5)
    other.backbone.set_weights(make().backbone.get_weights())
    other.load_lora_weights(tmp_path / "lora.safetensors")
    np.testing.assert_array_equal(
        other.predict(TOKENS, verbose=0), model.predict(TOKENS, verbose=0)
    )


@pytest.mark.usefixtures("eager_steps")
def test_distillation():
    teacher, student = make(pooling="mean"), make(pooling="mean", lstm_units=None, seed=5)
    teacher.untrained_heads = student.untrained_heads = ()
    copy = student_from_teacher(teacher, num_hidden_layers=1)
    assert copy.lstm_units == [5, 3]
    np.testing.assert_array_equal(
        copy.predict(TOKENS, verbose=0), teacher.predict(TOKENS, verbose=0)
    )
    model = DistillationModel(student, teacher, logits_weight=1.0)
    model.compile(AdamWeightDecay(0.01, bias_correction=True))
    losses = model.fit(TOKENS, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]


def test_what_is_refused():
    with pytest.raises(UserError, match="`lstm_units` of the model must be None"):
        cached_features(make(), ["good film"])
    for task in TRAINED:
        for units in (0, [], [3, -1], 2.5, True):
            with pytest.raises(UserError, match="`units` must be a positive integer or a list"):
                make(task, lstm_units=units)
        with pytest.raises(UserError, match="^`lstm_units` must be an argument"):
            make(task).lstm_units = [4]
