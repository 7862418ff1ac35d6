"""Writing: round trips to the bit, other people's readers, a directory that stays whole."""

import json
import resource

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert_tf import (
    BertBackbone,
    BertConfig,
    BertMaskedLM,
    BertPretrainer,
    BertTextClassifier,
    BertTokenizer,
)
from bert_tf.checkpoints import convert, load_task_model, save_model
from bert_tf.errors import CheckpointError, UserError
from bert_tf.families.file_values import ACTIVATION_NAMES
from tests.checkpoints import foreign
from tests.checkpoints.test_formats import assert_same_values, values_of

needs_torch = pytest.mark.peers
HEADS = ("masked_lm", "next_sentence")


def tf1_values(directory):
    reader = tf.train.load_checkpoint(str(directory / "bert_model.ckpt"))
    return {
        name: reader.get_tensor(name)
        for name in reader.get_variable_to_shape_map()
        if not name.endswith(("adam_m", "adam_v", "global_step"))
    }


def test_huggingface_round_trip(tmp_path):
    tensors = foreign.with_prefix(foreign.random_tensors(heads=HEADS))
    foreign.write_huggingface(
        tmp_path / "in",
        tensors,
        architectures=["BertForPreTraining"],
        torch_dtype="float32",
        use_cache=True,
        hidden_act="gelu_pytorch_tanh",
        layer_norm_eps=1e-6,
    )
    convert(tmp_path / "in", tmp_path / "out", "huggingface")
    assert_same_values(load_file(tmp_path / "out" / "model.safetensors"), tensors)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"] and config["use_cache"] is True
    assert config["layer_norm_eps"] == 1e-6 and config["hidden_act"] == "gelu_new"
    assert "torch_dtype" not in config


def test_a_head_that_is_tied_is_not_written_as_untied(tmp_path):
    """Other readers would initialize its table randomly."""
    foreign.write_huggingface(tmp_path, foreign.random_tensors(), tie_word_embeddings=False)
    BertMaskedLM.from_pretrained(tmp_path).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()).get("tie_word_embeddings", True)


@pytest.mark.parametrize("heads", [HEADS, ("classifier",), ()])
def test_tf1_round_trip(heads, tmp_path):
    foreign.write_tf1(tmp_path / "in", foreign.random_tensors(heads=heads))
    convert(tmp_path / "in", tmp_path / "out", "tf1")
    assert_same_values(tf1_values(tmp_path / "out"), tf1_values(tmp_path / "in"))
    config = json.loads((tmp_path / "out" / "bert_config.json").read_text())
    before = json.loads((tmp_path / "in" / "bert_config.json").read_text())
    assert {key: config[key] for key in before} == before
    assert "bert_tf_exact_gelu" not in config


@pytest.mark.parametrize("heads", [HEADS, ("classifier",)])
def test_huggingface_to_tf1_and_own_and_back(heads, tmp_path, caplog):
    tensors = foreign.with_prefix(foreign.random_tensors(heads=heads))
    architecture = "BertForPreTraining" if heads == HEADS else "BertForSequenceClassification"
    foreign.write_huggingface(tmp_path / "0", tensors, architectures=[architecture])
    with caplog.at_level("WARNING", logger="bert_tf"):
        convert(tmp_path / "0", tmp_path / "1", "tf1")
    assert "bert_tf_exact_gelu" in caplog.text
    convert(tmp_path / "1", tmp_path / "2", "bert_tf")
    convert(tmp_path / "2", tmp_path / "3", "huggingface")
    assert_same_values(load_file(tmp_path / "3" / "model.safetensors"), tensors)
    config = json.loads((tmp_path / "3" / "config.json").read_text())
    assert config["hidden_act"] == "gelu" and config["architectures"] == [architecture]


def test_tf1_opens_in_a_graph_with_the_originals_names(tiny_config, tmp_path):
    model = BertPretrainer(BertBackbone(tiny_config))
    save_model(model, tmp_path, "tf1")
    hidden, vocabulary = tiny_config.hidden_size, tiny_config.vocab_size
    expected = {
        "bert/embeddings/word_embeddings": [vocabulary, hidden],
        "bert/embeddings/LayerNorm/gamma": [hidden],
        "bert/encoder/layer_1/attention/self/query/kernel": [hidden, hidden],
        "bert/encoder/layer_0/output/dense/kernel": [tiny_config.intermediate_size, hidden],
        "bert/pooler/dense/bias": [hidden],
        "cls/predictions/output_bias": [vocabulary],
        "cls/predictions/transform/LayerNorm/beta": [hidden],
        "cls/seq_relationship/output_weights": [2, hidden],
    }
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = {
            name: tf.compat.v1.get_variable(name, shape, use_resource=False)
            for name, shape in expected.items()
        }
        tf.compat.v1.train.Saver(variables).restore(session, str(tmp_path / "bert_model.ckpt"))
        weights = session.run(variables["cls/seq_relationship/output_weights"])
    np.testing.assert_array_equal(weights, model.next_sentence.kernel.numpy().T)


def test_own_format_keeps_everything(tiny_config, tiny_vocabulary, tmp_path):
    model = BertTextClassifier(
        BertBackbone(tiny_config),
        labels=["a", "b", "c"],
        pooling="mean_max",
        dropout=0.4,
        tokenizer=BertTokenizer(tiny_vocabulary),
        max_length=20,
    )
    model.save_pretrained(tmp_path, format="bert_tf")
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert opened.get_config()["labels"] == ["a", "b", "c"]
    assert (opened.pooling, opened.dropout, opened.max_length) == ("mean_max", 0.4, 20)
    assert opened.tokenizer.vocabulary == tiny_vocabulary
    assert_same_values(values_of(opened), values_of(model))
    backbone = BertBackbone.from_pretrained(tmp_path)
    np.testing.assert_array_equal(backbone.pooler.dense.bias, model.backbone.pooler.dense.bias)


def test_labels_of_huggingface(tiny_config, tmp_path):
    model = BertTextClassifier(BertBackbone(tiny_config), labels=["no", "yes"])
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["id2label"] == {"0": "no", "1": "yes"}
    assert config["label2id"] == {"no": 0, "yes": 1}
    config.pop("bert_tf")  # as another program would have written it
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert BertTextClassifier.from_pretrained(tmp_path).labels == ["no", "yes"]
    config["id2label"] = {"zero": "no", "one": "yes"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="id2label"):
        BertTextClassifier.from_pretrained(tmp_path)


def test_a_failed_write_leaves_the_directory_as_it_was(tiny_config, tmp_path):
    backbone = BertBackbone(tiny_config)
    backbone.save_pretrained(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    backbone.pooler.dense.bias.assign(np.ones(32))
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").mkdir()  # the second file cannot be written
    with pytest.raises(OSError, match="model.safetensors"):
        backbone.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").rmdir()
    after = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert after == {name: before[name] for name in ("config.json", "notes.txt")}
    backbone.save_pretrained(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(before)


def test_a_full_disk_leaves_the_older_keras_file(tiny_config, tmp_path):
    backbone = BertBackbone(tiny_config)
    backbone.save(tmp_path / "model.keras")
    before = (tmp_path / "model.keras").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel then refuses to let a file grow past this, as a full disk would.
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError):
            backbone.save(tmp_path / "model.keras")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "model.keras").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]


def test_formats_do_not_mix_in_one_directory(tiny_config, tmp_path):
    backbone = BertBackbone(tiny_config)
    backbone.save_pretrained(tmp_path, format="bert_tf")
    with pytest.raises(UserError, match="another directory"):
        backbone.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="`format` must be one of"):
        backbone.save_pretrained(tmp_path, format="onnx")


def test_the_error_of_the_default_format_names_what_was_passed(tiny_config, tmp_path):
    backbone = BertBackbone(tiny_config)
    backbone.quantize("int8")
    words = "`format` must be 'bert_tf' .*Received: format=None, which is 'huggingface'.*int8"
    with pytest.raises(UserError, match=words):
        backbone.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="Received: format='tf1'"):
        backbone.save_pretrained(tmp_path, format="tf1")


def test_written_files_notice_a_flipped_bit(tiny_config, tmp_path):
    BertBackbone(tiny_config).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        BertBackbone.from_pretrained(tmp_path)


@needs_torch
@pytest.mark.parametrize("activation", sorted(set(ACTIVATION_NAMES.values())))
def test_transformers_opens_what_is_written(activation, tmp_path):
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    transformers = pytest.importorskip("transformers", reason="needs transformers and PyTorch")
    config = BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        hidden_act=activation,
        initializer_range=0.2,
    )
    inputs = foreign.token_inputs([9, 6], 9)
    theirs_in = {
        "input_ids": torch.tensor(inputs["token_ids"].astype(np.int64)),
        "token_type_ids": torch.tensor(inputs["segment_ids"].astype(np.int64)),
        "attention_mask": torch.tensor(inputs["padding_mask"].astype(np.int64)),
    }
    real = inputs["padding_mask"]

    def opened(name, directory):
        model, report = getattr(transformers, name).from_pretrained(
            directory, output_loading_info=True
        )
        assert not report["missing_keys"] and not report["unexpected_keys"], report
        assert not report["mismatched_keys"]
        with torch.no_grad():
            return model.eval()(**theirs_in)

    backbone = BertBackbone(config)
    backbone.save_pretrained(tmp_path / "backbone")
    theirs = opened("BertModel", tmp_path / "backbone")
    ours = backbone(inputs)
    np.testing.assert_allclose(
        ours["sequence_output"], theirs.last_hidden_state.numpy() * real[..., None], atol=1e-5
    )
    np.testing.assert_allclose(ours["pooled_output"], theirs.pooler_output, atol=1e-5)

    classifier = BertTextClassifier(BertBackbone(config), labels=["a", "b", "c"])
    classifier.save_pretrained(tmp_path / "classifier")
    theirs = opened("BertForSequenceClassification", tmp_path / "classifier")
    np.testing.assert_allclose(classifier(inputs), theirs.logits, atol=1e-5)

    pretrainer = BertPretrainer(BertBackbone(config))
    pretrainer.masked_lm_head.output_bias.assign(np.linspace(-1, 1, 50))
    save_model(pretrainer, tmp_path / "pretrainer")
    theirs = opened("BertForPreTraining", tmp_path / "pretrainer")
    positions = np.array([[1, 5, 8], [0, 2, 5]], np.int32)
    ours = pretrainer({**inputs, "masked_positions": positions})
    expected = np.take_along_axis(theirs.prediction_logits.numpy(), positions[..., None], 1)
    np.testing.assert_allclose(ours["masked_logits"], expected, atol=2e-5)
    np.testing.assert_allclose(
        ours["next_sentence_logits"], theirs.seq_relationship_logits, atol=1e-5
    )


@needs_torch
def test_opens_what_transformers_writes(tmp_path):
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
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
    inputs = foreign.token_inputs([9, 6], 9)
    theirs_in = {
        "input_ids": torch.tensor(inputs["token_ids"].astype(np.int64)),
        "token_type_ids": torch.tensor(inputs["segment_ids"].astype(np.int64)),
        "attention_mask": torch.tensor(inputs["padding_mask"].astype(np.int64)),
    }
    model = transformers.BertForPreTraining(config).eval()
    model.save_pretrained(tmp_path / "whole")
    model.save_pretrained(tmp_path / "shards", max_shard_size="10KB")
    torch.save(model.state_dict(), tmp_path / "state.bin")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    (tmp_path / "bin").mkdir()
    (tmp_path / "state.bin").rename(tmp_path / "bin" / "pytorch_model.bin")
    model.config.save_pretrained(tmp_path / "bin")
    with torch.no_grad():
        theirs = model(**theirs_in)
    positions = np.array([[1, 5, 8], [0, 2, 5]], np.int32)
    expected = np.take_along_axis(theirs.prediction_logits.numpy(), positions[..., None], 1)
    for name in ("whole", "shards", "bin"):
        ours = load_task_model(BertPretrainer, tmp_path / name)
        outputs = ours({**inputs, "masked_positions": positions})
        np.testing.assert_allclose(outputs["masked_logits"], expected, atol=2e-5)
    classifier = transformers.BertForSequenceClassification(
        transformers.BertConfig(**sizes, num_labels=4)
    ).eval()
    classifier.save_pretrained(tmp_path / "classifier")
    with torch.no_grad():
        logits = classifier(**theirs_in).logits
    ours = BertTextClassifier.from_pretrained(tmp_path / "classifier")
    np.testing.assert_allclose(ours(inputs), logits, atol=1e-5)
