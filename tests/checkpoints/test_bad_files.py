"""Files that are damaged or mean harm: an error that names them, and nothing else happens."""

import json
import struct
import zipfile

import h5py
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.errors import CheckpointError, ConfigError, UserError
from tests.checkpoints import foreign


@pytest.fixture
def safetensors_directory(tmp_path):
    foreign.write_huggingface(tmp_path, foreign.random_tensors())
    return tmp_path


def rewrite_header(path, change):
    """Changes the JSON header of a safetensors file; the numbers stay."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def overlap(header):
    bias = header["pooler.dense.bias"]["data_offsets"]
    header["encoder.layer.0.output.dense.bias"]["data_offsets"] = bias


def swap_shape(header):
    header["encoder.layer.0.intermediate.dense.weight"]["shape"] = [24, 40]


def too_long(header):
    header["pooler.dense.bias"]["data_offsets"][1] += 10**9


def wrong_type(header):
    header["pooler.dense.bias"]["dtype"] = "F16"


@pytest.mark.parametrize("change", [overlap, swap_shape, too_long, wrong_type])
def test_headers_that_lie(change, safetensors_directory):
    rewrite_header(safetensors_directory / "model.safetensors", change)
    with pytest.raises(CheckpointError, match="complete safetensors|received|expected shape"):
        BertBackbone.from_pretrained(safetensors_directory)


@pytest.mark.parametrize("length", [2**63, 2**40, 10**9, 0, 1])
def test_oversized_header(length, safetensors_directory):
    path = safetensors_directory / "model.safetensors"
    path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])
    with pytest.raises(CheckpointError, match="must be a complete safetensors file"):
        BertBackbone.from_pretrained(safetensors_directory)


def test_numbers_that_are_none(safetensors_directory):
    tensors = foreign.random_tensors()
    tensors["pooler.dense.bias"][3] = np.nan
    foreign.write_huggingface(safetensors_directory, tensors)
    with pytest.raises(CheckpointError, match="`pooler.dense.bias` in .* must hold finite"):
        BertBackbone.from_pretrained(safetensors_directory)


def test_numbers_that_are_none_in_a_keras_file(tiny_config, tiny_vocabulary, tmp_path):
    model = BertTextClassifier(
        BertBackbone(tiny_config), tokenizer=BertTokenizer(tiny_vocabulary, lowercase=False)
    )
    model.classifier.bias.assign([0.0, np.nan])
    model.save(tmp_path / "model.keras")
    with pytest.raises(CheckpointError, match="`classifier.bias` in .* must hold finite"):
        BertTextClassifier.from_pretrained(tmp_path / "model.keras")


@pytest.mark.parametrize(
    "name",
    [
        "../secret.safetensors",
        "/etc/passwd",
        "a/b.safetensors",
        "..",
        "",
        7,
        "absent.bin",
        "config.json",
    ],
)
def test_shard_index_that_leaves_its_directory(name, safetensors_directory):
    directory = safetensors_directory / "inner"
    foreign.write_config(directory)
    (safetensors_directory / "model.safetensors").rename(
        safetensors_directory / "secret.safetensors"
    )
    index = {"weight_map": dict.fromkeys(foreign.random_tensors(), name)}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="index.json"):
        BertBackbone.from_pretrained(directory)


@pytest.mark.parametrize("content", ["[", "[]", "{}", '{"weight_map": []}', "[" * 100_000])
def test_shard_index_that_is_none(content, tmp_path):
    foreign.write_config(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CheckpointError, match="index.json"):
        BertBackbone.from_pretrained(tmp_path)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"vocab_size": 1e999}', "\0", "null"])
def test_configuration_that_is_none(content, safetensors_directory):
    (safetensors_directory / "config.json").write_text(content)
    with pytest.raises(ConfigError, match="config.json"):
        BertBackbone.from_pretrained(safetensors_directory)


def h5_directory(directory):
    foreign.write_tf_h5(directory, foreign.random_tensors())
    return directory / "tf_model.h5", "bert/tf_bert_model/bert/pooler/dense/bias:0"


def test_h5_values_elsewhere_in_the_file(tmp_path):
    """Each of many values could be the same megabytes."""
    path, name = h5_directory(tmp_path)
    with h5py.File(path, "a") as file:
        del file[name]
        values = file.create_dataset(name, (24,), h5py.vlen_dtype(np.float32))
        values[0] = np.zeros(10**5, np.float32)
    with pytest.raises(CheckpointError, match="hold numbers"):
        BertBackbone.from_pretrained(tmp_path)


def keras_archive(tmp_path, tiny_config):
    BertBackbone(tiny_config).save(tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_keras_archives(tmp_path, tiny_config):
    members = keras_archive(tmp_path, tiny_config)
    path = tmp_path / "bad.keras"
    write_archive(path, {**members, "model.weights.h5": bytes(2**26)}, zipfile.ZIP_DEFLATED)
    with pytest.raises(CheckpointError, match="without compression"):
        BertBackbone.from_pretrained(path)
    config = json.loads(members["config.json"])
    config["config"]["config"]["vocab_size"] = 10**9
    write_archive(path, {**members, "config.json": json.dumps(config)})
    with pytest.raises(UserError, match="must fit the configuration"):
        BertBackbone.from_pretrained(path)
    write_archive(path, {"config.json": members["config.json"]})
    with pytest.raises(CheckpointError, match="model.weights.h5"):
        BertBackbone.from_pretrained(path)


def test_keras_hub_preset_of_another_network(tmp_path):
    foreign.write_keras_hub(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["registered_name"] = "keras_hub>RobertaBackbone"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="RobertaBackbone"):
        BertBackbone.from_pretrained(tmp_path)


def test_cut_tensorflow_data(tmp_path):
    foreign.write_tf1(tmp_path, foreign.random_tensors())
    path = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    path.write_bytes(path.read_bytes()[:-20000])
    with pytest.raises(CheckpointError, match="damaged|announces"):
        BertBackbone.from_pretrained(tmp_path)


@pytest.mark.parametrize("format", ["bert_tf", "huggingface"])
def test_class_that_nobody_knows(format, tmp_path, tiny_config):
    BertTextClassifier(BertBackbone(tiny_config), num_classes=3).save_pretrained(
        tmp_path, format=format
    )
    path = tmp_path / {"bert_tf": "bert_tf.json", "huggingface": "config.json"}[format]
    path.write_text(path.read_text().replace('"BertTextClassifier"', '"@ertTextClassifier"'))
    with pytest.raises(
        CheckpointError, match="`class` in .*BertTextClassifier.*@ertTextClassifier"
    ):
        BertTextClassifier.from_pretrained(tmp_path)
    BertBackbone.from_pretrained(tmp_path)
