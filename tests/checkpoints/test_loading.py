"""Opening checkpoints: both formats, and every way in which a file may be wrong."""

import contextlib
import copy
import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_tf import BertBackbone, BertConfig, BertTextClassifier, BertTokenizer
from bert_tf.checkpoints.assignment import check_claims
from bert_tf.errors import CheckpointError, UserError
from bert_tf.training import AdamWeightDecay, TrainingCheckpoint
from bert_tf.training.checkpointing.checkpoint_files import read_checkpoint, write_checkpoint


@pytest.fixture
def saved(tiny_config, tmp_path):
    """A tiny Hugging Face directory and the backbone it was written from."""
    backbone = BertBackbone(tiny_config)
    backbone.save_pretrained(tmp_path / "model")
    return tmp_path / "model", backbone


INPUTS = {"token_ids": np.array([[2, 9, 8, 7, 3]], np.int32)}


def change_tensors(directory, change):
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def assert_same_outputs(one, other):
    np.testing.assert_array_equal(one(INPUTS)["pooled_output"], other(INPUTS)["pooled_output"])


def test_old_names_and_prefix(saved):
    directory, backbone = saved

    def rename(tensors):
        for name in list(tensors):
            new = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            new = new.replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[f"bert.{new}"] = tensors.pop(name)

    change_tensors(directory, rename)
    assert_same_outputs(BertBackbone.from_pretrained(directory), backbone)


def test_a_directory_that_a_killed_writer_moved_away_is_opened(saved, tmp_path):
    directory, backbone = saved
    hidden = tmp_path / ".bert_tf-replacing"
    (hidden / "old").mkdir(parents=True)
    directory.rename(hidden / "old" / directory.name)
    journal = {"replaced": [directory.name], "added": [], "folders": []}
    (hidden / "journal.json").write_text(json.dumps(journal))
    assert_same_outputs(BertBackbone.from_pretrained(directory), backbone)


def test_half_precision_files(saved):
    directory, backbone = saved

    def halve(tensors):
        for name in tensors:
            tensors[name] = tensors[name].astype(np.float16)

    change_tensors(directory, halve)
    opened = BertBackbone.from_pretrained(directory)
    np.testing.assert_allclose(
        opened(INPUTS)["pooled_output"], backbone(INPUTS)["pooled_output"], atol=1e-2
    )


def test_tf1_checkpoint(saved, tmp_path):
    directory, backbone = saved
    tensors = load_file(directory / "model.safetensors")
    values = {"global_step": np.int64(7)}
    for name, value in tensors.items():
        is_kernel = name.endswith(".weight") and "LayerNorm" not in name
        is_kernel = is_kernel and "embeddings" not in name
        tf1 = name.replace("encoder.layer.", "encoder.layer_").replace(".", "/")
        if is_kernel:
            tf1, value = tf1.replace("/weight", "/kernel"), value.T
        elif "LayerNorm" in tf1:
            tf1 = tf1.replace("/weight", "/gamma").replace("LayerNorm/bias", "LayerNorm/beta")
        else:
            tf1 = tf1.removesuffix("/weight")
        values[f"bert/{tf1}"] = value
        values[f"bert/{tf1}/adam_m"] = value
    google = tmp_path / "google"
    google.mkdir()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=tf.constant(value), use_resource=False)
            for name, value in values.items()
        ]
        session.run([variable.initializer for variable in variables])
        tf.compat.v1.train.Saver(variables).save(
            session, str(google / "bert_model.ckpt"), write_meta_graph=False
        )
    (google / "bert_config.json").write_text(json.dumps(backbone.config.to_tf1()))
    for path in (google, google / "bert_model.ckpt"):
        assert_same_outputs(BertBackbone.from_pretrained(path), backbone)


def test_missing_and_misshapen_tensors_are_listed_together(saved):
    directory, _ = saved

    def damage(tensors):
        del tensors["encoder.layer.1.intermediate.dense.bias"]
        tensors["embeddings.word_embeddings.weight"] = np.zeros((60, 32), np.float32)

    change_tensors(directory, damage)
    with pytest.raises(CheckpointError) as error:
        BertBackbone.from_pretrained(directory)
    message = str(error.value)
    assert "missing: encoder.layer.1.intermediate.dense.bias, expected shape [48]" in message
    assert "expected shape [64, 32], received [60, 32]" in message
    assert "model.safetensors" in message


def test_unused_tensors_are_named(saved, caplog):
    directory, _ = saved
    change_tensors(directory, lambda tensors: tensors.update(extra=np.zeros(3, np.float32)))
    with caplog.at_level("INFO", logger="bert_tf"):
        BertBackbone.from_pretrained(directory)
    assert "not used: extra" in caplog.text


def test_integers_where_weights_belong(saved):
    directory, _ = saved
    change_tensors(
        directory, lambda tensors: tensors.update({"pooler.dense.bias": np.zeros(32, np.int32)})
    )
    with pytest.raises(CheckpointError, match="`pooler.dense.bias` in .* must hold float"):
        BertBackbone.from_pretrained(directory)


@pytest.mark.parametrize("keep", [0, 5, 300, 20000])
def test_truncated_file(saved, keep):
    directory, _ = saved
    content = (directory / "model.safetensors").read_bytes()
    assert keep < len(content)
    (directory / "model.safetensors").write_bytes(content[:keep])
    with pytest.raises(CheckpointError, match="must be a complete safetensors file"):
        BertBackbone.from_pretrained(directory)


def test_garbage_file(saved):
    directory, _ = saved
    (directory / "model.safetensors").write_bytes(b"\x80\x04" + b"pickle" * 50)
    with pytest.raises(CheckpointError, match="must be a complete safetensors file"):
        BertBackbone.from_pretrained(directory)


def test_config_of_another_size(saved):
    directory, _ = saved
    config = json.loads((directory / "config.json").read_text())
    config["num_hidden_layers"] = 3
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="missing: encoder.layer.2"):
        BertBackbone.from_pretrained(directory)


def test_nothing_there(tmp_path):
    with pytest.raises(CheckpointError, match="must be a checkpoint"):
        BertBackbone.from_pretrained(tmp_path / "absent")
    with pytest.raises(CheckpointError, match="must be a checkpoint"):
        BertBackbone.from_pretrained(tmp_path)


def test_damaged_tf1_checkpoint(tmp_path, tiny_config):
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"nonsense")
    (tmp_path / "bert_config.json").write_text(json.dumps(tiny_config.to_tf1()))
    with pytest.raises(CheckpointError, match="complete index of a TensorFlow checkpoint"):
        BertBackbone.from_pretrained(tmp_path)


def test_classifier_round_trip_with_labels_and_pooling(tiny_config, tiny_vocabulary, tmp_path):
    from bert_tf import BertTokenizer

    model = BertTextClassifier(
        BertBackbone(tiny_config),
        labels=["schlecht", "gut", "weder"],
        pooling="mean_max",
        tokenizer=BertTokenizer(tiny_vocabulary),
        max_length=20,
    )
    model.save_pretrained(tmp_path)
    opened = BertTextClassifier.from_pretrained(tmp_path)
    assert opened.labels == ["schlecht", "gut", "weder"]
    assert (opened.pooling, opened.max_length) == ("mean_max", 20)
    texts = ["the film.", "good"]
    np.testing.assert_array_equal(opened.predict(texts, verbose=0), model.predict(texts, verbose=0))
    # Other labels mean another head: this one does not fit and must not be taken in silence.
    with pytest.raises(CheckpointError, match="classifier.weight"):
        BertTextClassifier.from_pretrained(tmp_path, labels=["a", "b"])


def test_vocabulary_of_another_size(saved, tiny_vocabulary):
    directory, _ = saved
    (directory / "vocab.txt").write_text("\n".join(tiny_vocabulary[:-1]) + "\n")
    with pytest.raises(UserError, match="as many entries as the word embeddings: 64"):
        BertTextClassifier.from_pretrained(directory)


def test_unknown_option(saved, tiny_vocabulary):
    directory, _ = saved
    (directory / "vocab.txt").write_text("\n".join(tiny_vocabulary) + "\n")
    with pytest.raises(UserError, match="num_clases"):
        BertTextClassifier.from_pretrained(directory, num_clases=3)


def test_unknown_option_of_a_backbone(saved):
    with pytest.raises(UserError, match=r"BertBackbone.from_pretrained must be .*\['dropuot'\]"):
        BertBackbone.from_pretrained(saved, dropuot=0.1)


def test_labels_come_in_the_order_of_their_numbers(tiny_config, tmp_path):
    labels = [f"label {number}" for number in range(12)]  # "10" comes before "2" as text
    BertTextClassifier(BertBackbone(tiny_config), labels=labels).save_pretrained(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    values = json.loads(config.read_text())
    values["id2label"] = dict(reversed(values["id2label"].items()))
    del values["label2id"], values["bert_tf"]  # as other libraries write it
    config.write_text(json.dumps(values))
    assert BertTextClassifier.from_pretrained(tmp_path / "model").labels == labels


@pytest.mark.parametrize("format", ["huggingface", "tf1", "bert_tf", "keras"])
def test_a_configuration_elsewhere_gives_the_network_only(
    format, tiny_config, tiny_vocabulary, tmp_path
):
    """google's predict line: the trained model and the bert_config.json of the one before it."""
    model = BertTextClassifier(
        BertBackbone(dataclasses.replace(tiny_config, attention_window=2)),
        labels=["low", "middle", "high"],
        pooling="mean",
        problem_type="multi_label_classification",
        tokenizer=BertTokenizer(tiny_vocabulary),
    )
    path = tmp_path / ("model.keras" if format == "keras" else "model")
    model.save(path) if format == "keras" else model.save_pretrained(path, format)
    values = BertConfig(**tiny_config.to_dict()).to_tf1() | {"hidden_dropout_prob": 0.3}
    (tmp_path / "bert_config.json").write_text(json.dumps(values))
    opened = BertTextClassifier.from_pretrained(path, config_file=tmp_path / "bert_config.json")
    for name in ("labels", "pooling", "problem_type"):
        assert getattr(opened, name) == getattr(model, name)
    assert opened.backbone.config.attention_window == 2  # google's file has no word for it
    assert opened.backbone.config.hidden_dropout_prob == 0.3
    np.testing.assert_allclose(opened(INPUTS), model(INPUTS), atol=1e-6)


def test_a_broken_configuration_is_replaced_by_the_given_one(saved, caplog):
    directory, backbone = saved
    given = directory.parent / "config.json"
    (directory / "config.json").rename(given)
    (directory / "config.json").write_text("{")
    assert_same_outputs(BertBackbone.from_pretrained(directory, config_file=given), backbone)
    assert "must be a valid JSON file" in caplog.text


def test_a_checkpoint_of_a_training_and_the_directory_around_it(tiny_config, tmp_path):
    model = BertTextClassifier(
        BertBackbone(tiny_config), labels=["low", "middle", "high"], pooling="mean"
    )
    model.compile(AdamWeightDecay(1e-3))
    checkpoint = TrainingCheckpoint(tmp_path / "checkpoints")
    checkpoint.set_model(model)
    checkpoint.save()
    model.classifier.bias.assign([1.0, 2.0, 3.0])
    checkpoint.step = 7
    checkpoint.save()
    for path in ("checkpoints/ckpt-7", "checkpoints", "."):
        opened = BertTextClassifier.from_pretrained(tmp_path / path)
        assert (opened.labels, opened.pooling) == (model.labels, "mean")
        assert opened.untrained_heads == ()
        np.testing.assert_array_equal(opened(INPUTS), model(INPUTS))
    start = BertTextClassifier.from_pretrained(tmp_path / "checkpoints" / "ckpt-0")
    start.save_pretrained(tmp_path / "model")
    opened = BertTextClassifier.from_pretrained(tmp_path)  # the trained model comes first
    np.testing.assert_array_equal(opened(INPUTS), start(INPUTS))


@pytest.fixture(scope="module")
def training_checkpoint(tiny_config, tmp_path_factory):
    """The tensors and the state of a checkpoint of a training."""
    directory = tmp_path_factory.mktemp("training")
    model = BertTextClassifier(BertBackbone(tiny_config), labels=["low", "high"])
    model.compile(AdamWeightDecay(1e-3))
    checkpoint = TrainingCheckpoint(directory)
    checkpoint.set_model(model)
    checkpoint.save()
    return read_checkpoint(directory / "ckpt-0")


@pytest.mark.parametrize(
    "section, key, value, message",
    [
        ("network", "num_hidden_layers", 10**6, "num_hidden_layers"),
        ("network", "vocab_size", 10**9, "must fit the configuration"),
        ("network", "position_offset", 2**31 - 1, "must fit the configuration"),
        ("network", "embedding_size", 2**31 - 1, "must fit the configuration"),
        ("options", "num_classes", 10**9, "must fit the configuration"),
        ("options", "colour", "red", "valid arguments of BertTextClassifier"),
        ("model", "class", "Nope", "`model.class` in .*state.json must be"),
        ("model", "options", [], "`model.options` in .*state.json must be"),
    ],
)
def test_what_a_training_checkpoint_claims_is_compared_with_its_weights(
    training_checkpoint, tmp_path, section, key, value, message
):
    tensors, state = copy.deepcopy(training_checkpoint)
    inside = state["model"]["options"] if section == "options" else state[section]
    inside[key] = value
    write_checkpoint(tmp_path, 0, tensors, state)  # with the right fingerprints
    with pytest.raises(UserError, match=message):
        BertTextClassifier.from_pretrained(tmp_path)


def test_shared_blocks_are_not_counted_by_their_weights(tiny_config):
    endless = {"shared_blocks": True, "num_hidden_layers": 10**9}
    config = BertConfig(**tiny_config.to_dict() | endless)
    shapes = {f"tensor_{number}": (10**6,) for number in range(100)}
    with pytest.raises(CheckpointError, match="must be at most 1000 for shared blocks"):
        check_claims(config, {}, shapes, "model.safetensors")


@pytest.mark.parametrize("scheme, is_refused", [("absolute", True), ("rotary", False)])
def test_only_positions_with_a_table_need_numbers(tiny_config, scheme, is_refused):
    """A small ModernBERT was refused for the table of 8,192 positions that it does not have."""
    many = {"position_embedding_type": scheme, "max_position_embeddings": 10**6}
    config = BertConfig(**tiny_config.to_dict() | many)
    shapes = {f"tensor_{number}": (1000,) for number in range(100)}
    refused = pytest.raises(CheckpointError, match="must fit the configuration")
    with refused if is_refused else contextlib.nullcontext():
        check_claims(config, {}, shapes, "model.safetensors")
