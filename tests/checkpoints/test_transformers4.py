"""What the TensorFlow classes of transformers 4 saved and computed: ours compute the same.

transformers 4.57 is the last version with TensorFlow. It runs in an environment of its own
(`make transformers4`), where transformers4_models.py saves models and their outputs.
"""

import json
import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  the operations of a SavedModel

import bert_tf
from bert_tf.checkpoints import load_task_model
from tests.checkpoints import transformers4_models
from tests.checkpoints.transformers4_environment import installed_transformers4
from tests.tools.running import run

# Class of transformers -> ours, and the one of its SavedModel if it is another.
CLASSES = {
    "TFBertModel": ("BertBackbone", "BertSentenceEncoder"),
    "TFBertForPreTraining": ("BertPretrainer", "BertMaskedLM"),
    "TFBertForMaskedLM": ("BertMaskedLM", None),
    "TFBertForNextSentencePrediction": ("BertNextSentencePredictor", None),
    "TFBertForSequenceClassification": ("BertTextClassifier", None),
    "TFBertForMultipleChoice": ("BertMultipleChoice", None),
    "TFBertForTokenClassification": ("BertTokenClassifier", None),
    "TFBertForQuestionAnswering": ("BertQuestionAnswerer", None),
}
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The folder that transformers4_models.py filled."""
    python = installed_transformers4()
    directory = tmp_path_factory.mktemp("transformers4")
    program = [python, transformers4_models.__file__, directory]
    subprocess.run(program, env={"PATH": os.environ["PATH"], "USE_TORCH": "0"}, check=True)
    return directory


def read(folder):
    """What was computed, and the inputs under our names."""
    computed = dict(np.load(folder / "computed.npz"))
    inputs = {
        "token_ids": computed["input_ids"],
        "segment_ids": computed["token_type_ids"],
        "padding_mask": computed["attention_mask"] > 0,
    }
    return computed, inputs


def assert_close(found, expected):
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * scale)


@pytest.mark.parametrize("way", list(transformers4_models.WAYS))
@pytest.mark.parametrize("name", list(CLASSES))
def test_outputs(name, way, saved):
    folder = saved / name / way
    computed, inputs = read(folder)
    model_class = getattr(bert_tf, CLASSES[name][0])
    if name == "TFBertModel":
        model = model_class.from_pretrained(folder)
    else:
        model = load_task_model(model_class, folder)
        assert not model.untrained_heads
    real = inputs["padding_mask"][..., None]
    if name != "TFBertForMultipleChoice":  # whose pairs are rows of the backbone
        backbone = getattr(model, "backbone", model)
        outputs = backbone(inputs, output_hidden_states=True, output_attentions=True)
        for layer, states in enumerate(computed["hidden_states"]):
            assert_close(outputs["hidden_states"][layer], states * real)
        rows = real[:, np.newaxis]  # a row of probabilities per token
        for layer, probabilities in enumerate(computed["attentions"]):
            assert_close(outputs["attentions"][layer] * rows, probabilities * rows)
        if "pooler_output" in computed:
            assert_close(outputs["sequence_output"], computed["last_hidden_state"] * real)
            assert_close(outputs["pooled_output"], computed["pooler_output"])
    if name == "TFBertForPreTraining":
        everywhere = np.tile(np.arange(17, dtype=np.int32), (3, 1))
        found = model({**inputs, "masked_positions": everywhere})
        assert_close(found["masked_logits"] * real, computed["prediction_logits"] * real)
        assert_close(found["next_sentence_logits"], computed["seq_relationship_logits"])
    elif name == "TFBertForQuestionAnswering":
        expected = np.stack([computed["start_logits"], computed["end_logits"]], axis=1)
        real = real[:, np.newaxis, :, 0]
        assert_close(np.where(real, model(inputs), 0), np.where(real, expected, 0))
    elif name in ("TFBertForMaskedLM", "TFBertForTokenClassification"):
        assert_close(model(inputs) * real, computed["logits"] * real)
    elif name != "TFBertModel":
        assert_close(model(inputs), computed["logits"])


@pytest.mark.parametrize("name", list(CLASSES))
def test_to_a_saved_model_in_one_command(name, saved, tmp_path):
    folder = saved / name / "h5"
    computed, inputs = read(folder)
    task = [f"--input={folder}/tf_model.h5", f"--output={tmp_path}", "--format=saved_model"]
    if name == "TFBertModel":
        result = run("convert_checkpoint", *task, timeout=600)
        assert result.returncode == 1
        assert "--model=sentence_embedding" in result.stderr
        task.append("--model=sentence_embedding")
    result = run("convert_checkpoint", *task, "--verify", timeout=600)
    assert result.returncode == 0, result.stderr
    ours = CLASSES[name][1] or CLASSES[name][0]
    assert result.stdout.startswith(f"{ours}, version 1\n")
    loaded = tf.saved_model.load(tmp_path / "1")
    found = loaded.signatures["tokens"](**{k: tf.constant(v) for k, v in inputs.items()})
    real = inputs["padding_mask"]
    if name == "TFBertModel":
        states = computed["last_hidden_state"] * real[..., None]
        assert_close(found["vector"], states.sum(1) / real.sum(1, keepdims=True))
    elif name == "TFBertForQuestionAnswering":
        for key in ("start_logits", "end_logits"):
            assert_close(np.where(real, found[key], 0), np.where(real, computed[key], 0))
    else:
        logits = computed["prediction_logits" if "PreTraining" in name else "logits"]
        is_token = logits.shape[:2] == real.shape
        mask = real[..., None] if is_token and ours != "BertMultipleChoice" else 1
        assert_close(found["logits"] * mask, logits * mask)
    texts = json.loads((folder / "texts.json").read_text())
    if texts:
        texts = {key: tf.constant(values) for key, values in texts.items()}
        compare_answers(ours, computed, loaded.signatures["serving_default"](**texts))


def compare_answers(model, computed, answers):
    """What the SavedModel makes of raw strings, with what comes of transformers' tokenizer."""
    logits = computed["text_logits"]
    probabilities = tf.nn.softmax(logits).numpy()
    if model == "BertMaskedLM":
        mask = transformers4_models.VOCABULARY.index("[MASK]")
        rows, places = np.nonzero(computed["text_input_ids"] == mask)
        best = np.argsort(-probabilities[rows, places])[:, :5]
        pieces = [[transformers4_models.VOCABULARY[i].encode() for i in row] for row in best]
        assert answers["piece"][:, 0].numpy().tolist() == pieces
        expected = np.take_along_axis(probabilities[rows, places], best, axis=-1)
        assert_close(answers["probability"][:, 0], expected)
    elif model == "BertTextClassifier":
        labels = [transformers4_models.LABELS[i].encode() for i in logits.argmax(-1)]
        assert answers["label"].numpy().tolist() == labels
        assert_close(answers["logits"], logits)
        assert_close(answers["probabilities"], probabilities)
    else:
        assert_close(answers["logits"], logits)
        assert_close(answers["probability"], probabilities[:, 0])
