"""What files say in JSON: refused by file and key, bounded, and nothing else is opened."""

import itertools
import json
import os
import pathlib
import re
import zipfile

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_tf import (
    BertBackbone,
    BertConfig,
    BertSentenceEncoder,
    BertTextClassifier,
    BertTokenClassifier,
    BertTokenizer,
)
from bert_tf.base.json_files import MOST_BYTES, parse_json, read_json
from bert_tf.checkpoints.opening import open_pretrained
from bert_tf.errors import CheckpointError, ConfigError, UserError
from bert_tf.serving.description import read_description
from bert_tf.tasks.sentence_embedding.module_files import encoder_options
from bert_tf.text import tokenizer_files
from bert_tf.training.checkpointing.checkpoint_files import read_checkpoint, write_checkpoint
from tests.checkpoints import foreign
from tests.fuzz.json_mutants import mutants

TINY = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn", "##a"]
FINGERPRINT = {"bytes": 3, "sha256": "0" * 64}


@pytest.fixture(scope="module")
def backbone():
    return BertBackbone(BertConfig(**TINY))


@pytest.fixture(scope="module")
def samples(backbone, tmp_path_factory):
    """A directory of each format."""
    root = tmp_path_factory.mktemp("samples")
    tokenizer = BertTokenizer(VOCABULARY)
    classifier = BertTextClassifier(backbone, labels=["bad", "good"], tokenizer=tokenizer)
    classifier.save_pretrained(root / "huggingface")
    classifier.save_pretrained(root / "own", format="bert_tf")
    (root / "keras").mkdir()
    classifier.save(root / "keras" / "model.keras")
    encoder = BertSentenceEncoder(backbone, tokenizer=tokenizer, whitening_size=4)
    encoder.save_pretrained(root / "encoder")
    foreign.write_keras_hub(root / "keras_hub", "classifier")
    (root / "tokenizer").mkdir()
    (root / "tokenizer" / "tokenizer.json").write_text(
        json.dumps(
            {
                "added_tokens": [{"id": 0, "content": "[PAD]"}],
                "normalizer": {"type": "BertNormalizer", "lowercase": False, "strip_accents": None},
                "model": {
                    "type": "WordPiece",
                    "continuing_subword_prefix": "##",
                    "vocab": {piece: index for index, piece in enumerate(VOCABULARY)},
                },
            }
        )
    )
    sharded = root / "sharded"
    tensors = foreign.random_tensors({**foreign.HF_CONFIG, **TINY})
    foreign.write_huggingface(sharded, tensors, **TINY)
    (sharded / "model.safetensors").rename(sharded / "model-00001-of-00001.safetensors")
    names = load_file(sharded / "model-00001-of-00001.safetensors")
    (sharded / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(names, "model-00001-of-00001.safetensors")})
    )
    state = {"step": 3, "network": {"vocab_size": 20}, "settings": {"rate": float("inf")}}
    write_checkpoint(root / "run", 3, {"a": np.zeros(3)}, state)
    (root / "saved_model" / "assets.extra").mkdir(parents=True)
    field = {"text": {"dtype": "string", "shape": [-1], "meaning": "The text."}}
    (root / "saved_model" / "assets.extra" / "bert_tf.json").write_text(
        json.dumps(
            {
                "model": "BertTextClassifier",
                "version": 1,
                "portable": True,
                "max_length": 16,
                "labels": ["bad", "good"],
                "signatures": {"serving_default": {"inputs": field, "outputs": field}},
            }
        )
    )
    return root


@pytest.fixture
def files(samples):
    """`files(name)`: the directory of a format; what a test changes there is undone."""
    saved = {}

    def use(name):
        for path in (samples / name).rglob("*"):
            if path.is_file():
                saved[path] = path.read_bytes()
        return samples / name

    yield use
    for path, content in saved.items():
        path.write_bytes(content)


def change(path, *keys, to):
    """Replaces a value in a JSON file; in an archive, of its `config.json`."""
    is_archive = path.suffix == ".keras"
    members = {"": path.read_bytes()}
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    name = "config.json" if is_archive else ""
    values = inner = json.loads(members[name])
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    members[name] = json.dumps(values).encode()
    if not is_archive:
        path.write_bytes(members[name])
        return
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "content,words",
    [
        (b"", "must be a valid JSON file"),
        (b"[" * 100_000, "must be a valid JSON file"),
        (b"[" * 100 + b"]" * 100, "more than 64 levels"),
        (b"[" + b"[],[]," * 200_000 + b"[]]", "lists and objects"),
        (b'{"a": "' + b":" * 2_000_000 + b'"}', "2,000,000 colons"),
        (b'{"a": 1, "b": 2, "a": 3}', "'a' occurs more than once"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b'{"a": "\xff"}', "UTF-8"),
        (rb'{"a": "\ud800"}', "UTF-8"),
        (b"\xef\xbb\xbf{}", "must be a valid JSON file"),
        (b" " * (MOST_BYTES + 1), "larger than"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_json_for_us(content, words):
    with pytest.raises(CheckpointError, match=f"x/config.json.*{words}"):
        parse_json(content, "x/config.json")


def test_files_that_never_end_are_not_read(tmp_path):
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path / "zero.json", tmp_path / "pipe.json", tmp_path):
        with pytest.raises(ConfigError, match=f"{path} must be a JSON file"):
            read_json(path, error=ConfigError)
    (tmp_path / "vocab.txt").symlink_to("/dev/zero")
    with pytest.raises(UserError, match="not a regular file"):
        BertTokenizer.from_pretrained(tmp_path)


def open_classifier(path):
    return BertTextClassifier.from_pretrained(path)


def open_tokenizer(path):
    return BertTokenizer(**tokenizer_files.read(path))


def open_training(path):
    return read_checkpoint(path)


# Directory, file, what opens it, keys, value, and what the message says after the file.
WRONG = [
    ("huggingface", "config.json", open_classifier, ["hidden_size"], "8", "positive integer"),
    ("huggingface", "config.json", open_classifier, ["hidden_size"], None, "positive integer"),
    ("huggingface", "config.json", open_classifier, ["vocab_size"], 10**12, "positive integer"),
    ("huggingface", "config.json", open_classifier, ["layer_norm_eps"], True, r"in \(0, 1\)"),
    ("huggingface", "config.json", open_classifier, ["id2label"], {"0": []}, "a string or a"),
    ("huggingface", "config.json", open_classifier, ["architectures"], [{}], "a string"),
    ("huggingface", "config.json", open_classifier, ["problem_type"], {}, "a string"),
    ("huggingface", "config.json", open_classifier, ["bert_tf"], [], "an object"),
    ("huggingface", "config.json", open_classifier, ["bert_tf", "options", "labels"], 7, "a list"),
    ("huggingface", "config.json", open_classifier, ["bert_tf", "options", "dropout"], "0", "0, 1"),
    ("huggingface", "tokenizer_config.json", open_tokenizer, ["do_lower_case"], "no", "true or"),
    ("huggingface", "tokenizer_config.json", open_tokenizer, ["model_max_length"], "8", "an int"),
    ("huggingface", "tokenizer_config.json", open_tokenizer, ["unk_token"], {"content": 1}, "a s"),
    ("huggingface", "tokenizer_config.json", open_tokenizer, ["errors"], "ignore", "'strict'"),
    ("tokenizer", "tokenizer.json", open_tokenizer, ["normalizer"], [], "an object"),
    ("tokenizer", "tokenizer.json", open_tokenizer, ["normalizer", "lowercase"], 1, "true or"),
    ("tokenizer", "tokenizer.json", open_tokenizer, ["model", "vocab", "a"], "5", "an integer"),
    ("tokenizer", "tokenizer.json", open_tokenizer, ["added_tokens"], [3], "an object"),
    ("own", "bert_tf.json", open_classifier, ["format_version"], "1", "positive integer"),
    ("own", "bert_tf.json", open_classifier, ["class"], [], "a string"),
    ("own", "bert_tf.json", open_classifier, ["config", "extra"], [], "an object"),
    ("own", "bert_tf.json", open_classifier, ["config", "heads"], 3, "no other keys"),
    ("own", "bert_tf.json", open_classifier, ["options", "num_classes"], 2.0, "positive integer"),
    ("keras", "model.keras", open_classifier, ["config", "labels"], {}, "a list"),
    (
        "keras",
        "model.keras",
        open_classifier,
        ["config", "backbone", "config", "config"],
        3,
        "an object",
    ),
    (
        "keras",
        "model.keras",
        open_classifier,
        ["config", "tokenizer", "config", "errors"],
        3,
        "'strict'",
    ),
    ("keras_hub", "config.json", open_classifier, ["config", "num_layers"], 2.5, "positive"),
    ("keras_hub", "config.json", open_classifier, ["config", "dropout"], "none", r"in \[0, 1\)"),
    ("encoder", "modules.json", encoder_options, [1, "path"], "../huggingface", "a folder"),
    ("encoder", "modules.json", encoder_options, [1, "path"], "/etc", "a folder"),
    ("encoder", "modules.json", encoder_options, [1, "type"], None, "a string"),
    ("encoder", "1_Pooling/config.json", encoder_options, ["pooling_mode_cls_token"], 1, "true or"),
    ("encoder", "2_Dense/config.json", encoder_options, ["out_features"], "4", "positive"),
    ("encoder", "sentence_bert_config.json", encoder_options, ["max_seq_length"], [], "an integer"),
    (
        "sharded",
        "model.safetensors.index.json",
        open_pretrained,
        ["weight_map", "pooler.dense.bias"],
        "../own/bert_tf.safetensors",
        "directory of the index",
    ),
    ("run", "ckpt-3/manifest.json", open_training, ["files"], {}, "nothing"),
    ("run", "ckpt-3/manifest.json", open_training, ["files", "state.json", "bytes"], "3", "an int"),
    ("run", "ckpt-3/manifest.json", open_training, ["files", "../x"], FINGERPRINT, "no other keys"),
    ("run", "ckpt-3/manifest.json", open_training, ["format"], True, "1"),
    ("saved_model", "assets.extra/bert_tf.json", read_description, ["labels"], "ab", "a list"),
    ("saved_model", "assets.extra/bert_tf.json", read_description, ["signatures"], [], "an object"),
]


@pytest.mark.parametrize("name,file,opens,keys,value,words", WRONG)
def test_a_wrong_value_is_refused_by_file_and_key(files, name, file, opens, keys, value, words):
    directory = files(name)
    change(directory / file, *keys, to=value)
    path = directory / pathlib.Path(file).parent if opens is open_training else directory
    with pytest.raises(UserError) as error:
        opens(path / file if name == "keras" else path)
    message = str(error.value)
    assert pathlib.Path(file).name in message
    assert str(keys[0]) in message and len(message) < 2000
    assert re.search(words, message), message


@pytest.mark.parametrize("where", ["huggingface", "own", "keras", "id2label", "dense", "layers"])
def test_what_a_file_claims_must_fit_its_weights(files, where, recorded_layers):
    """Nothing is built: a claim of 10^9 classes, words or layers would take all memory."""
    directory = files(
        "encoder"
        if where == "dense"
        else where
        if where in ("huggingface", "own", "keras")
        else "huggingface"
    )
    if where == "huggingface":
        change(
            directory / "config.json",
            "bert_tf",
            "options",
            to={"num_classes": 2_000_000_000, "labels": None},
        )
    elif where == "own":
        change(
            directory / "bert_tf.json", "options", to={"num_classes": 10_000_000, "labels": None}
        )
    elif where == "keras":
        directory = directory / "model.keras"
        change(directory, "config", "num_classes", to=10_000_000)
    elif where == "id2label":
        labels = {str(index): str(index) for index in range(10_000)}
        change(directory / "config.json", "id2label", to=labels)
    elif where == "dense":
        change(directory / "2_Dense" / "config.json", "out_features", to=10**9)
    else:
        change(directory / "config.json", "num_hidden_layers", to=100)
    kind = BertSentenceEncoder if where == "dense" else BertTextClassifier
    with pytest.raises(UserError, match="fit|num_hidden_layers|linear.weight"):
        kind.from_pretrained(directory)
    assert not recorded_layers
    if where == "own":
        with pytest.raises(CheckpointError, match="must fit the configuration"):
            BertTokenClassifier.from_pretrained(directory)


@pytest.fixture
def recorded_layers(monkeypatch, samples):
    """The backbones that are built while a test runs."""
    built = []
    build = BertBackbone.__init__

    def record(self, *arguments, **options):
        built.append(self)
        build(self, *arguments, **options)

    monkeypatch.setattr(BertBackbone, "__init__", record)
    return built


def test_a_head_that_the_caller_wants_may_be_larger(files):
    model = BertTextClassifier.from_pretrained(files("sharded"), num_classes=5000)
    assert model.classifier.kernel.shape[-1] == 5000


def test_a_rank_that_lora_files_claim(files, backbone, tmp_path):
    model = BertTextClassifier(backbone, labels=["bad", "good"])
    name = "encoder.blocks.0.attention.query_key_value.lora_kernel_{}"
    for rank_a in ((8, 0), (0, 10**9), (1, 10**6), (10**6,)):
        tensors = {
            name.format("a"): np.zeros(rank_a, np.float32),
            name.format("b"): np.zeros((2, 24), np.float32),
            "lora_alpha": np.array(2.0, np.float32),
        }
        save_file(tensors, tmp_path / "lora.safetensors")
        with pytest.raises(CheckpointError, match="lora_kernel_a.*lora.safetensors"):
            model.load_lora_weights(tmp_path / "lora.safetensors")
        assert model.lora is None


@pytest.mark.parametrize("opens", [open_classifier, keras.saving.load_model])
def test_a_model_file_reads_nothing_but_itself(files, opens, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    path = files("keras") / "model.keras"
    change(path, "config", "tokenizer", "config", "vocabulary", to=str(tmp_path / "vocab.txt"))
    with pytest.raises(ConfigError, match="vocabulary.*must be a list"):
        opens(path)


def test_own_files_name_no_tokenizer(files, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    directory = files("own")
    (directory / "vocab.txt").unlink()
    change(directory / "bert_tf.json", "options", "tokenizer", to=str(tmp_path / "vocab.txt"))
    assert BertTextClassifier.from_pretrained(directory).tokenizer is None


# Every JSON file that is read, and what reads it without building a model of TensorFlow's.
READERS = {
    ("huggingface", "config.json"): lambda path: open_pretrained(path.parent),
    ("huggingface", "tokenizer_config.json"): lambda path: open_tokenizer(path.parent),
    ("tokenizer", "tokenizer.json"): lambda path: open_tokenizer(path.parent),
    ("own", "bert_tf.json"): lambda path: open_pretrained(path.parent),
    ("keras_hub", "config.json"): lambda path: open_pretrained(path.parent),
    ("keras_hub", "task.json"): lambda path: open_pretrained(path.parent),
    ("encoder", "modules.json"): lambda path: encoder_options(path.parent),
    ("encoder", "1_Pooling/config.json"): lambda path: encoder_options(path.parents[1]),
    ("encoder", "2_Dense/config.json"): lambda path: encoder_options(path.parents[1]),
    ("encoder", "sentence_bert_config.json"): lambda path: encoder_options(path.parent),
    ("sharded", "model.safetensors.index.json"): lambda path: open_pretrained(path.parent),
    ("run", "ckpt-3/manifest.json"): lambda path: read_checkpoint(path.parent),
    ("saved_model", "assets.extra/bert_tf.json"): lambda path: read_description(path.parents[1]),
}


@pytest.mark.parametrize("name,file", READERS)
def test_mutants_end_in_our_error_or_are_read(files, name, file, is_full):
    path = files(name) / file
    reads, refused = READERS[name, file], 0
    # HDF5 takes its time; tests/fuzz opens thousands of all but the last two.
    many = {"keras_hub": 40, "sharded": 1000, "saved_model": 1000}.get(name, 200)
    count = many if is_full else min(many, 200)
    for mutant in itertools.islice(mutants(path.read_bytes(), 0), count):
        path.write_bytes(mutant)
        try:
            reads(path)
        except UserError:
            refused += 1
    assert refused > count // 5


def test_a_long_value_is_not_repeated_whole(files):
    directory = files("huggingface")
    change(directory / "config.json", "position_embedding_type", to="x" * 100_000)
    with pytest.raises(ConfigError, match=r"config.json: `pos\S+` must be 'absolute'") as error:
        open_pretrained(directory)  # which puts the path before the message of another error
    left_out = int(re.search(r"x \[(\d+) characters left out\] x", str(error.value))[1])
    assert left_out > 95_000
    assert len(str(error.value)) < 10_000 and left_out + len(str(error.value)) > 100_000
