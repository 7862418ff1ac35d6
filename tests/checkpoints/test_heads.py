"""Every head of the BERT family: opened from each format, written back to the same bits."""

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_tf
from bert_tf.checkpoints import convert
from bert_tf.errors import UserError
from tests.checkpoints import foreign
from tests.checkpoints.test_formats import assert_same_values
from tests.checkpoints.test_saving import tf1_values

LABELS = ["O", "B", "I"]
# Hugging Face's class -> ours, the heads in its files, whether it has a pooler.
CLASSES = {
    "BertForPreTraining": ("BertPretrainer", ("masked_lm", "next_sentence"), True),
    "BertForMaskedLM": ("BertMaskedLM", ("masked_lm",), False),
    "BertForNextSentencePrediction": ("BertNextSentencePredictor", ("next_sentence",), True),
    "BertForQuestionAnswering": ("BertQuestionAnswerer", ("question_answering",), False),
    "BertForSequenceClassification": ("BertTextClassifier", ("classifier",), True),
    "BertForTokenClassification": ("BertTokenClassifier", ("classifier",), False),
    "BertForMultipleChoice": ("BertMultipleChoice", ("choice",), True),
}


def tensors_of(architecture):
    _, heads, pooler = CLASSES[architecture]
    tensors = foreign.random_tensors(heads=heads)
    return {name: value for name, value in tensors.items() if pooler or "pooler" not in name}


def config_of(architecture):
    if "classifier" not in CLASSES[architecture][1]:
        return {"architectures": [architecture]}
    return {"architectures": [architecture], "id2label": dict(enumerate(LABELS))}


@pytest.mark.parametrize("architecture", list(CLASSES))
def test_from_huggingface_through_every_format_and_back(architecture, tmp_path, caplog):
    tensors = foreign.with_prefix(tensors_of(architecture))
    foreign.write_huggingface(tmp_path / "0", tensors, **config_of(architecture))
    for step, format in enumerate(("tf1", "bert_tf", "huggingface")):
        conversion = convert(tmp_path / str(step), tmp_path / str(step + 1), format)
        assert type(conversion.model).__name__ == CLASSES[architecture][0], format
    assert_same_values(load_file(tmp_path / "3" / "model.safetensors"), tensors)
    config = bert_tf.BertConfig.from_json_file(tmp_path / "3" / "config.json")
    assert config.extra["architectures"] == [architecture]
    assert "pooler" not in caplog.text  # none is missing where none is used


@pytest.mark.parametrize("architecture", list(CLASSES))
def test_from_tf1_and_back(architecture, tmp_path):
    name, heads, _ = CLASSES[architecture]
    foreign.write_tf1(tmp_path / "in", foreign.random_tensors(heads=heads))
    options = {"labels": LABELS} if name == "BertTokenClassifier" else {}
    model = getattr(bert_tf, name).from_pretrained(tmp_path / "in", **options)
    model.save_pretrained(tmp_path / "out", format="tf1")
    assert_same_values(tf1_values(tmp_path / "out"), tf1_values(tmp_path / "in"))


def test_a_missing_pooler_is_logged_where_it_is_used(tmp_path, caplog):
    tensors = tensors_of("BertForMaskedLM")
    foreign.write_huggingface(tmp_path / "in", tensors)
    for name, options, is_logged in (
        ("BertTextClassifier", {"pooling": "mean"}, False),
        ("BertSentenceEncoder", {}, False),
        ("BertFeatureExtractor", {"layer_indices": [-1]}, False),
        ("BertPretrainer", {"objective": "mlm"}, False),
        ("BertPretrainer", {}, True),
        ("BertTextClassifier", {}, True),
    ):
        caplog.clear()
        model = getattr(bert_tf, name).from_pretrained(tmp_path / "in", **options)
        assert ("has no pooler" in caplog.text) == is_logged, name
    # The last one trains it: then it is written.
    model.save_pretrained(tmp_path / "out")
    written = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(
        written["bert.pooler.dense.weight"].T, model.backbone.pooler.dense.kernel
    )


@pytest.mark.peers
@pytest.mark.parametrize("architecture", list(CLASSES))
def test_transformers_reads_back_what_it_wrote(architecture, tmp_path):
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    sizes = {
        key: foreign.HF_CONFIG[key]
        for key in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
        )
    }
    config = transformers.BertConfig(**sizes, initializer_range=0.2)
    theirs = getattr(transformers, architecture)(config)
    theirs.save_pretrained(tmp_path / "in")
    conversion = convert(tmp_path / "in", tmp_path / "out", "huggingface")
    assert type(conversion.model).__name__ == CLASSES[architecture][0]
    again, report = getattr(transformers, architecture).from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[problem], (problem, report[problem])
    written, received = (
        {name: value.numpy() for name, value in model.state_dict().items()}
        for model in (theirs, again)
    )
    assert_same_values(received, written)


def test_what_a_file_lacks_starts_as_in_a_new_model(tmp_path):
    foreign.write_huggingface(tmp_path, tensors_of("BertForMaskedLM"))
    keras.utils.set_random_seed(5)
    opened = bert_tf.BertTextClassifier.from_pretrained(tmp_path)
    keras.utils.set_random_seed(5)
    new = bert_tf.BertTextClassifier(bert_tf.BertBackbone(opened.backbone.config))
    for received, expected in (
        (opened.backbone.pooler.dense.kernel, new.backbone.pooler.dense.kernel),
        (opened.classifier.kernel, new.classifier.kernel),
    ):
        assert np.std(received) > 0
        np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("clear", ["fit", "train_on_batch", "load_weights"])
def test_heads_at_random_are_known_until_they_are_trained(tmp_path, clear):
    foreign.write_huggingface(tmp_path / "in", tensors_of("BertForMaskedLM"))
    model = bert_tf.BertTextClassifier.from_pretrained(tmp_path / "in")
    assert model.untrained_heads == ("pooler", "classifier")
    with pytest.raises(UserError, match="trained before it is exported.*pooler and classifier"):
        model.require_trained_heads("exported")
    x, y = {"token_ids": np.array([[1, 2, 3]])}, np.array([1])
    model.compile("sgd", run_eagerly=True)
    if clear == "fit":
        model.fit(x, y, verbose=0)
    elif clear == "train_on_batch":
        model.train_on_batch(x, y)
    else:
        model.save_weights(tmp_path / "in.weights.h5")
        model.load_weights(tmp_path / "in.weights.h5")
    model.require_trained_heads("exported")
