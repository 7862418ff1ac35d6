"""Public attacks on files, by number: none of them runs code, opens another file or takes memory.

Each test makes a small file as the attack has it and opens it. SECURITY.md lists the numbers, also
those of attacks on the server, which tests/server sends.
"""

import ast
import base64
import contextlib
import copy
import ctypes
import io
import json
import os
import pickle
import re
import struct
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertTextClassifier, BertTokenizer
from bert_tf.errors import CheckpointError, ConfigError, DataError, UserError
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.server.served_model import ServedModel
from bert_tf.tasks.pretraining.records import check_records
from bert_tf.text import load_tokenizer
from tests.checkpoints import foreign
from tests.conftest import REPOSITORY
from tests.fuzz import tokenizer_mutants
from tests.fuzz.runner import memory, reset_peak

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

MEGABYTE = 2**20
_IN_OPEN = 0x20  # inotify.h
TINY = {
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn", "##a"]


@contextlib.contextmanager
def unopened(directory):
    """Fails if a file of the directory is opened meanwhile, in Python or in C++."""
    libc = ctypes.CDLL(None)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(descriptor, os.fsencode(directory), _IN_OPEN) >= 0
    try:
        yield
        with pytest.raises(BlockingIOError):  # there is no event to read
            os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def little_memory():
    reset_peak()
    before = memory("VmRSS")
    yield
    assert memory("VmHWM") - before < 100 * MEGABYTE


@pytest.fixture
def trap(tmp_path):
    """Files that an attack reads, and one that it would write; after the test, neither happened."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    (folder / "words.txt").write_text("\n".join(VOCABULARY))
    (folder / "raw").write_bytes(bytes(4096))
    with h5py.File(folder / "secret.h5", "w") as file:
        file["values"] = np.ones(1024, np.float32)
    victim = tmp_path / "victim"
    with unopened(folder):
        yield types.SimpleNamespace(folder=folder, victim=victim)
    assert not victim.exists()


@pytest.mark.parametrize(
    "read", [lambda path: path.read_bytes(), lambda p: tf.io.read_file(str(p))]
)
def test_the_trap_notices(tmp_path, read):
    (tmp_path / "file").write_text("text")
    with pytest.raises(pytest.fail.Exception), unopened(tmp_path):
        read(tmp_path / "file")


def test_the_limit_of_memory_notices():
    with pytest.raises(AssertionError), little_memory():
        np.ones(150 * MEGABYTE, np.uint8)


class Harmful:
    """Unpickled, it makes a file."""

    def __init__(self, path):
        self._path = path

    def __reduce__(self):
        return open, (str(self._path), "w")


# ---- Keras: what config.json of a `.keras` archive names ----


def harmful_lambda(trap):
    return eval(f"lambda x: (open({str(trap.victim)!r}, 'w').close(), x)[1]")


def layer(class_name, package="keras.layers", /, **config):
    return {"module": package, "class_name": class_name, "config": config, "registered_name": None}


def function(module, name):
    return {
        "module": module,
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }


# What stands for a layer, by the numbers of the attacks that it is a part of.
KERAS_OBJECTS = {
    "CVE-2024-3660 CVE-2026-12481": lambda trap: keras.saving.serialize_keras_object(
        keras.layers.Lambda(harmful_lambda(trap), name="lambda")
    ),
    "CVE-2025-1550": lambda trap: {
        **function("os", "system"),
        "inbound_nodes": [{"args": [f"touch {trap.victim}"], "kwargs": {}}],
    },
    "CVE-2025-8747": lambda trap: layer(
        "Lambda",
        function=function("keras.utils", "get_file"),
        arguments={"fname": str(trap.victim), "origin": (trap.folder / "raw").as_uri()},
    ),
    "CVE-2025-9906": lambda _: layer(
        "Lambda", function=function("keras.config", "enable_unsafe_deserialization"), arguments={}
    ),
    "CVE-2025-12058": lambda trap: layer(
        "StringLookup", vocabulary=str(trap.folder / "words.txt"), name="lookup"
    ),
    "CVE-2025-49655 CVE-2026-12484": lambda trap: layer(
        "TorchModuleWrapper", module=base64.b64encode(pickle.dumps(Harmful(trap.victim))).decode()
    ),
    "CVE-2026-1462": lambda trap: layer(
        "TFSMLayer", filepath=str(trap.folder), call_endpoint="serve", name="saved"
    ),
}


@pytest.fixture(scope="module")
def archive_members(tmp_path_factory):
    """The members of a `.keras` file of a classifier."""
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    backbone = BertBackbone(BertConfig(**TINY))
    BertTextClassifier(backbone, num_classes=2, tokenizer=BertTokenizer(VOCABULARY)).save(path)
    return members_of(path)


def members_of(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_archive(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def with_config(path, members, change):
    """Writes a `.keras` file of which `change` has changed the configuration."""
    config = json.loads(members["config.json"])
    config = change(config) or config
    return write_archive(path, {**members, "config.json": json.dumps(config)})


@pytest.mark.parametrize("place", ["model", "backbone", "tokenizer", "compile_config"])
@pytest.mark.parametrize("number", KERAS_OBJECTS)
def test_keras_archive(number, place, trap, archive_members, tmp_path):
    harmful = KERAS_OBJECTS[number](trap)

    def change(config):
        if place == "model":
            layers = [layer("InputLayer", batch_shape=[None, 1], name="input"), harmful]
            return layer("Sequential", "keras", name="model", layers=layers)
        (config["config"] if place != "compile_config" else config)[place] = harmful
        return config

    path = with_config(tmp_path / "model.keras", archive_members, change)
    if place == "compile_config":  # it is not read
        assert BertTextClassifier.from_pretrained(path).num_classes == 2
    else:
        with pytest.raises(ConfigError, match="model.keras"):
            BertTextClassifier.from_pretrained(path)
    if place in ("backbone", "tokenizer"):  # Keras's own loader calls our `from_config`
        with pytest.raises(ConfigError, match=f"`{place}` must be"):
            keras.saving.load_model(path)
    if number == "CVE-2025-9906":  # if the attack succeeds, Keras runs this lambda
        lambdas = keras.Sequential([keras.Input([1]), keras.layers.Lambda(harmful_lambda(trap))])
        trap.victim.unlink()  # the model has called it
        lambdas.save(tmp_path / "lambda.keras")
        with pytest.raises(ValueError, match="safe_mode"):
            keras.saving.load_model(tmp_path / "lambda.keras")


def test_the_lambda_is_harmful(trap, tmp_path):
    """The proof that the files of these tests would do something: Keras runs it if it may."""
    path = tmp_path / "model.keras"
    keras.Sequential([keras.Input([1]), keras.layers.Lambda(harmful_lambda(trap))]).save(path)
    trap.victim.unlink()
    keras.saving.load_model(path, safe_mode=False)
    trap.victim.unlink()


@pytest.mark.parametrize("name", ["model.h5", "model.hdf5", "tf_model.h5"])
def test_legacy_keras_model_cve_2025_9905(name, trap, tmp_path):
    model = keras.Sequential([keras.Input([1]), keras.layers.Lambda(harmful_lambda(trap))])
    model.save(tmp_path / "model.h5")
    (tmp_path / "model.h5").rename(tmp_path / name)
    trap.victim.unlink()
    foreign.write_config(tmp_path)
    with pytest.raises(CheckpointError, match=re.escape(name)):
        BertBackbone.from_pretrained(tmp_path / name)
    keras.saving.load_model(tmp_path / name, safe_mode=False)  # the proof
    trap.victim.unlink()


@pytest.mark.parametrize("kind", ["config.json", "bert_config.json"])
def test_yaml_cve_2021_37678(kind, trap, tmp_path):
    foreign.write_huggingface(tmp_path, foreign.random_tensors())
    (tmp_path / "config.json").rename(tmp_path / kind)
    command = f"touch {trap.victim}"
    (tmp_path / kind).write_text(f"a: !!python/object/apply:os.system ['{command}']\n")
    with pytest.raises(ConfigError, match=kind):
        BertBackbone.from_pretrained(tmp_path)


def test_layer_name_cve_2026_12479(trap, archive_members, tmp_path):
    """Keras makes folders of the names of layers; ours do not have those of the file."""
    name = "../../victim"

    def change(config):
        config["config"]["name"] = config["config"]["backbone"]["config"]["name"] = name

    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    path = with_config(folder / "model.keras", archive_members, change)
    model = BertTextClassifier.from_pretrained(path)
    assert name not in (model.name, model.backbone.name)
    model.save(folder / "again.keras")
    model.save_pretrained(folder / "saved")
    assert {entry.name for entry in tmp_path.iterdir()} == {"a", "secrets"}
    assert {entry.name for entry in folder.parent.iterdir()} == {"b"}


# ---- HDF5 ----

HDF5_ATTACKS = {
    "CVE-2026-9335": lambda file, name, folder: file.__setitem__(
        name, h5py.ExternalLink(str(folder / "secret.h5"), "/values")
    ),
    "CVE-2026-1669": lambda file, name, folder: file.create_dataset(
        name, (24,), "f4", external=[(str(folder / "raw"), 0, 96)]
    ),
    "CVE-2026-12480": lambda file, name, folder: file.create_virtual_dataset(
        name, _virtual(folder / "secret.h5")
    ),
    "CVE-2026-0897 CVE-2026-12570 chunks": lambda file, name, _: file.create_dataset(
        name, (10**6, 10**5), "f4", chunks=(1000, 1000), compression="gzip"
    ),
    "CVE-2026-0897 CVE-2026-12570 whole": lambda file, name, _: file.create_dataset(
        name, (10**6, 10**5), "f4"
    ),
}


def _virtual(path):
    layout = h5py.VirtualLayout((24,), "f4")
    layout[:] = h5py.VirtualSource(str(path), "values", (24,))
    return layout


def _write_tf_h5(folder, _):
    foreign.write_tf_h5(folder, foreign.random_tensors())
    return folder / "tf_model.h5"


def _write_keras_hub(folder, _):
    foreign.write_keras_hub(folder)
    return folder / "model.weights.h5"


def _write_weights(folder, members):
    (folder / "config.json").write_text(json.dumps(BertConfig(**TINY).to_huggingface()))
    (folder / "bert.weights.h5").write_bytes(members["model.weights.h5"])
    return folder / "bert.weights.h5"


def _write_keras(folder, members):
    (folder / "weights").write_bytes(members["model.weights.h5"])
    return folder / "weights"


HDF5_FILES = {
    "tf_model.h5": _write_tf_h5,
    "model.weights.h5": _write_keras_hub,
    "bert.weights.h5": _write_weights,
    "model.keras": _write_keras,
}


@pytest.mark.parametrize("name", HDF5_FILES)
@pytest.mark.parametrize("number", HDF5_ATTACKS)
def test_hdf5(number, name, trap, archive_members, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    weights = HDF5_FILES[name](folder, archive_members)
    with h5py.File(weights, "a") as file:
        datasets = []
        file.visititems(lambda key, item: datasets.append(key) if hasattr(item, "shape") else None)
        del file[datasets[0]]
        HDF5_ATTACKS[number](file, datasets[0], trap.folder)
    if name == "model.keras":
        members = {**archive_members, "model.weights.h5": weights.read_bytes()}
        write_archive(folder / name, members)
        weights.unlink()
    with little_memory(), pytest.raises(CheckpointError, match=re.escape(name)) as refused:
        BertBackbone.from_pretrained(folder / name)
    assert datasets[0] in str(refused.value)


# ---- Archives and pickles ----


@pytest.mark.parametrize("name", ["../victim", "VICTIM", "a/../../victim"])
@pytest.mark.parametrize("file", ["model.keras", "pytorch_model.bin"])
def test_member_outside_cve_2007_4559_cve_2024_55459_cve_2025_12060(
    file, name, trap, archive_members, tmp_path
):
    """Members are views of the archive: none is unpacked, wherever its name leads."""
    folder = tmp_path / "model"
    path = folder / file
    foreign.write_config(folder)
    if file == "model.keras":
        write_archive(path, archive_members)
    else:
        foreign.write_torch(path, foreign.random_tensors())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name.replace("VICTIM", str(trap.victim)), "content")
    BertBackbone.from_pretrained(path)
    assert {entry.name for entry in folder.iterdir()} == {"config.json", file}


UNPACKING = ("tarfile", "unpack_archive", "extractall", "extract", "get_file", "yaml", "marshal")
EXECUTING = ("eval", "exec", "Unpickler", "pickle", "cPickle", "joblib", "dill", "allow_pickle")


def harmful_names(source):
    """Returns those of UNPACKING and EXECUTING that the source imports or calls."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import():
                names |= {alias.name.split(".")[0] for alias in node.names}
            case ast.ImportFrom():
                names |= {(node.module or "").split(".")[0], *(a.name for a in node.names)}
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                names |= {name} - ({"eval"} if isinstance(node.func, ast.Attribute) else set())
                is_allowed = any(
                    word.arg == "allow_pickle" and ast.unparse(word.value) != "False"
                    for word in node.keywords
                )
                names |= {"allow_pickle"} if is_allowed else set()
    return names & {*UNPACKING, *EXECUTING}


def test_nothing_unpacks_cve_2026_11816_cve_2026_12482():
    """No module of the package and no tool unpacks an archive, unpickles or evaluates text."""
    for folder in ("bert_tf", "tools"):
        paths = [*(REPOSITORY / folder).rglob("*.py")]
        assert paths
        for path in paths:
            assert not harmful_names(path.read_text("utf-8")), path


@pytest.mark.parametrize(
    "source, name",
    [
        ("import tarfile", "tarfile"),
        ("from pickle import loads", "pickle"),
        ("from shutil import unpack_archive", "unpack_archive"),
        ("archive.extractall(path)", "extractall"),
        ("eval(text)", "eval"),
        ("np.load(path, allow_pickle=True)", "allow_pickle"),
    ],
)
def test_harmful_names_are_found(source, name):
    assert harmful_names(source) == {name}


def test_overlapping_members_cve_2024_0450(tmp_path):
    """A hundred tensors, of which each member is the same bytes of the file."""
    values = np.zeros([256, 256], np.float32)
    tensors = {f"tensor {number}": values for number in range(100)}
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", foreign.torch_pickle(tensors))
        archive.writestr("archive/data/0", values.tobytes())
        (first,) = (one for one in archive.infolist() if one.filename.endswith("/0"))
        for number in range(1, 100):
            other = zipfile.ZipInfo(f"archive/data/{number}")
            for name in ("header_offset", "file_size", "compress_size", "CRC"):
                setattr(other, name, getattr(first, name))
            archive.filelist.append(other)
            archive.NameToInfo[other.filename] = other
    foreign.write_config(tmp_path)
    with pytest.raises(CheckpointError, match="pytorch_model.bin.*larger than the file"):
        BertBackbone.from_pretrained(tmp_path)


def _tar(content):
    """What `torch.load` took for the format of 2016, and unpickled whatever `weights_only` says."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _torch_script(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "code/__torch__.py"):
            archive.writestr(f"archive/{name}", content)
    return file.getvalue()


def _zip_of_pickle(content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", content)
    return file.getvalue()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(_tar, id="CVE-2025-32434 tar"),
        pytest.param(_torch_script, id="CVE-2025-32434 script"),
        # Keys and values set in what is no dictionary.
        pytest.param(lambda _: _zip_of_pickle(b"\x80\x02]K\x00K\x01s."), id="CVE-2026-24747 item"),
        pytest.param(
            lambda _: _zip_of_pickle(b"\x80\x02)(K\x00K\x01u."), id="CVE-2026-24747 items"
        ),
    ],
)
def test_torch_file(make, trap, tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(make(pickle.dumps(Harmful(trap.victim))))
    foreign.write_config(tmp_path)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        BertBackbone.from_pretrained(tmp_path)


def test_pickles_around_a_model_cve_2023_6730_cve_2023_7018_cve_2024_3568_cve_2026_1839(
    trap, tmp_path
):
    """What transformers unpickles next to the weights is not even opened."""
    folder = tmp_path / "model"
    foreign.write_huggingface(folder, foreign.random_tensors())
    kept = folder / "checkpoint"
    kept.mkdir()
    names = ["training_args.bin", "rng_state.pth", "optimizer.pt", "vocab.pkl", "index.dpr"]
    for name in (*names, "checkpoint/extra_data.pickle"):
        (folder / name).write_bytes(pickle.dumps(Harmful(trap.victim)))
    for name in names:  # all in one folder, which is watched
        (folder / name).rename(kept / name)
        (folder / name).symlink_to(kept / name)
    with unopened(kept):
        BertBackbone.from_pretrained(folder)


def test_code_of_config_json_cve_2026_4372_cve_2026_5241(trap, tmp_path):
    """No module is imported, and what is saved does not name it to other libraries."""
    folder = tmp_path / "model"
    keys = {
        "auto_map": {"AutoModel": "modeling_harmful.Model", "AutoConfig": "other/repo--a.Config"},
        "trust_remote_code": True,
        "_attn_implementation_internal": "attacker/kernel",
        "_experts_implementation_internal": "attacker/kernel",
    }
    foreign.write_huggingface(folder, foreign.random_tensors(), **keys, kept_key=1)
    (folder / "tokenizer_config.json").write_text(json.dumps(keys))
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in VOCABULARY))
    code = folder / "code"
    code.mkdir()
    (code / "modeling_harmful.py").write_text(f"open({str(trap.victim)!r}, 'w')\n")
    (folder / "modeling_harmful.py").symlink_to(code / "modeling_harmful.py")
    with unopened(code):
        model = BertBackbone.from_pretrained(folder)
        model.save_pretrained(tmp_path / "saved", format="huggingface")
        load_tokenizer(folder).save_pretrained(tmp_path / "saved")
    assert "modeling_harmful" not in sys.modules
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert written["kept_key"] == 1
    # transformers asks its caller before it follows an `auto_map`, which some networks need.
    assert keys.keys() & written.keys() <= {"auto_map"}
    assert (
        not keys.keys()
        & json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text()).keys()
    )


# ---- Tokenizers, tables, records, graphs ----


@pytest.mark.parametrize(
    ("charsmap", "is_refused"),
    [
        (struct.pack("<I", 2**32 - 4), True),  # a trie that is longer than the file
        (struct.pack("<I", 3) + b"abc", True),  # a part of a unit
        # A node far outside the trie: it has no children.
        (struct.pack("<4I", 12, 2**31 - 1, 1 << 10, 7), False),
    ],
    ids=["long", "short", "outside"],
)
def test_sentencepiece_cve_2026_1260(charsmap, is_refused, tmp_path):
    messages = copy.deepcopy(tokenizer_mutants.MESSAGES)
    messages[-1][1][2] = charsmap
    (tmp_path / "spiece.model").write_bytes(tokenizer_mutants.model(messages))
    with little_memory():
        if is_refused:
            with pytest.raises(UserError, match="charsmap"):
                load_tokenizer(tmp_path)
        else:
            load_tokenizer(tmp_path)(["a text"])


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer"])
def test_regular_expression_of_a_tokenizer(part, tmp_path):
    """One that takes time exponential in the text is refused, as all that are not known."""
    harmful = {
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated"},
        "normalizer": {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
    }
    vocabulary = {piece: index for index, piece in enumerate(VOCABULARY)}
    model = {"type": "WordPiece", "continuing_subword_prefix": "##", "vocab": vocabulary}
    definition = {"model": model, part: harmful[part]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(UserError, match=f"(?s){part}.*tokenizer.json|tokenizer.json.*{part}"):
        load_tokenizer(tmp_path)


def test_parquet_extension_type_cve_2023_47248(trap, tmp_path):
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Harmful(trap.victim)),
    }
    field = pa.field("text", pa.string(), metadata=metadata)
    pq.write_table(pa.table([["a"]], schema=pa.schema([field])), tmp_path / "table.parquet")
    assert b"arrow.py_extension_type" in base64.b64decode(
        pq.read_metadata(tmp_path / "table.parquet").metadata[b"ARROW:schema"]
    )
    assert [row for _, row in read_table(tmp_path / "table.parquet")] == [{"text": "a"}]


@pytest.mark.parametrize("size", [2**30, 2**62, 2**64 - 1])
def test_record_that_announces_gigabytes(size, tmp_path):
    """The record has the right checksum of its length, which an attacker can compute."""
    from bert_tf.base.crc32c import crc32c, masked

    length = struct.pack("<Q", size)
    (tmp_path / "records").write_bytes(length + struct.pack("<I", masked(crc32c(length))) + b"abcd")
    with little_memory(), pytest.raises(DataError, match="records"):
        check_records([tmp_path / "records"], 12, 2)


def _nested(depth):
    """A SavedModel with a function in an attribute of a function in an attribute, and so on."""

    field = tokenizer_mutants.field
    value = b""
    for _ in range(depth):  # AttrValue.func = 10, NameAttrList.attr = 2, its value = 2
        value = field(10, field(1, b"f") + field(2, field(1, b"a") + field(2, value)))
    node = field(1, b"n") + field(2, b"Identity") + field(5, field(1, b"a") + field(2, value))
    return field(2, field(2, field(1, node)))  # SavedModel.meta_graphs, .graph_def, .node


@pytest.mark.parametrize("depth", [200, 2000])
def test_nested_messages_cve_2025_4565(depth, tmp_path):
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "saved_model.pb").write_bytes(_nested(depth))
    with little_memory(), pytest.raises(UserError, match="saved_model|" + re.escape(str(tmp_path))):
        ServedModel(tmp_path / "1")


def test_graph_of_a_saved_model_with_weights(trap, tmp_path):
    """Weights of a SavedModel of TF Hub are read without its graph, whatever that would do."""
    vocabulary = [f"word{number}" for number in range(foreign.HF_CONFIG["vocab_size"])]
    folder = foreign.write_tf_hub(tmp_path / "hub", foreign.random_tensors(), vocabulary)
    foreign.write_config(folder / "assets")
    graph = folder / "graph"
    graph.mkdir()
    (folder / "saved_model.pb").rename(graph / "saved_model.pb")
    (folder / "saved_model.pb").symlink_to(graph / "saved_model.pb")
    with unopened(graph):
        BertBackbone.from_pretrained(folder)


def test_security_md_has_all_numbers_and_tests():
    table = (REPOSITORY / "SECURITY.md").read_text("utf-8")
    server = REPOSITORY / "tests" / "server"
    sources = {
        path: path.read_text("utf-8")
        for path in (
            *map(server.joinpath, ("test_known_attacks.py", "test_grpc.py")),
            Path(__file__),
        )
    }
    used = {
        f"CVE-{year}-{number}"
        for text in sources.values()
        for year, number in re.findall(r"(?i)cve[-_](\d{4})[-_](\d+)", text)
    }
    rows = re.findall(r"(?m)^\| (.+?) \|.*\| (`.*`) \|$", table)
    listed = {number for row, _ in rows for number in re.findall(r"CVE-\d+-\d+", row)}
    assert used <= listed, used - listed
    for row, tests in rows:
        for test in re.findall("`(.+?)`", tests):
            file, _, name = test.rpartition("::")
            text = (REPOSITORY / file).read_text("utf-8") if file else sources[Path(__file__)]
            assert f"def {name}(" in text, test
            if (numbers := re.findall(r"CVE-\d+-\d+", row)) and "_cve_" in name:
                assert {n.lower().replace("-", "_") for n in numbers} <= {
                    f"cve_{n}" for n in re.findall(r"cve_(\d+_\d+)", name)
                }
