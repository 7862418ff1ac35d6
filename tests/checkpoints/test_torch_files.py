"""`pytorch_model.bin`: read without PyTorch, and nothing in it is ever run."""

import os
import pickle
import zipfile

import numpy as np
import pytest

from bert_tf import BertBackbone
from bert_tf.checkpoints.readers.torch_source import TorchSource
from bert_tf.errors import CheckpointError
from tests.checkpoints import foreign

TENSORS = {
    "table": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(6, dtype=np.float32).reshape(3, 2).T,
    "half": np.ones(5, np.float16),
    "ids": np.arange(4, dtype=np.int64),
}


def read_all(path):
    source = TorchSource(str(path))
    return {name: source.read(name) for name in source.shapes}


@pytest.mark.parametrize("write", [foreign.write_torch, foreign.write_legacy_torch])
def test_both_containers(write, tmp_path):
    tensors = {name: values for name, values in TENSORS.items() if name != "transposed"}
    write(tmp_path / "model.bin", tensors)
    for name, values in read_all(tmp_path / "model.bin").items():
        np.testing.assert_array_equal(values, tensors[name])
        assert values.dtype == tensors[name].dtype


def zip_with_pickle(path, content, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", content)
        for name, values in members.items():
            archive.writestr(f"archive/data/{name}", values)


class Harmful:
    """Unpickled, it would run a command."""

    def __init__(self, command):
        self._command = command

    def __reduce__(self):
        return os.system, (self._command,)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("container", ["zip", "legacy", "plain"])
def test_harmful_pickles_are_refused_and_not_run(protocol, container, tmp_path):
    victim = tmp_path / "victim"
    content = pickle.dumps({"weights": Harmful(f"touch {victim}")}, protocol=protocol)
    path = tmp_path / "pytorch_model.bin"
    if container == "zip":
        zip_with_pickle(path, content)
    elif container == "legacy":
        with open(path, "wb") as file:
            for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}):
                pickle.dump(value, file, protocol=2)
            file.write(content)
    else:
        path.write_bytes(content)
    foreign.write_config(tmp_path)
    with pytest.raises(CheckpointError):
        BertBackbone.from_pretrained(tmp_path)
    assert not victim.exists()
    # The proof that it would have been: Python's own reader runs it.
    pickle.loads(content)
    assert victim.exists()


@pytest.mark.parametrize(
    "content,words",
    [
        (b"\x80\x02cos\nsystem\n(X\x02\x00\x00\x00lstR.", "os.system"),
        (b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR.", "builtins.eval"),
        (b"\x80\x02ctorch._utils\n_rebuild_device_tensor\n(tR.", "_rebuild_device_tensor"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "posix.system"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81.", "NEWOBJ"),
        (b"(ios\nsystem\n.", "INST"),
        (b"\x80\x02]]s.", "state dict"),
        (b"\x80\x02}(K\x01K\x01tK\x01s.", "keys of type tuple"),
        (b"\x80\x02", "state dict"),
        (b"\x80\x02ccollections\nOrderedDict\n.", "state dict"),
    ],
)
def test_what_a_state_dict_does_not_need_is_refused_by_name(content, words, tmp_path):
    zip_with_pickle(tmp_path / "model.bin", content)
    with pytest.raises(CheckpointError, match=words):
        TorchSource(str(tmp_path / "model.bin"))


def test_a_pickle_of_many_containers_is_refused(tmp_path):
    """One takes 1 byte in the file and 64 in memory."""
    zip_with_pickle(tmp_path / "model.bin", b"\x80\x02" + b"}" * 1_100_000 + b".")
    with pytest.raises(CheckpointError, match="more than 1,000,000 instructions"):
        TorchSource(str(tmp_path / "model.bin"))


def test_compressed_members_are_refused(tmp_path):
    """A zip bomb: 64 MB that take 64 KB in the file."""
    with zipfile.ZipFile(tmp_path / "model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", foreign.torch_pickle({}))
        archive.writestr("archive/data/0", bytes(2**26))
    with pytest.raises(CheckpointError, match="without compression"):
        TorchSource(str(tmp_path / "model.bin"))


def test_tensors_beyond_their_storage(tmp_path):
    big = {"a": np.zeros([1000, 1000], np.float32)}
    zip_with_pickle(tmp_path / "cut.bin", foreign.torch_pickle(big), **{"0": b"1234"})
    with pytest.raises(CheckpointError, match="must be a complete file"):
        read_all(tmp_path / "cut.bin")
    repeated = {"a": np.broadcast_to(np.float32(1), [1000, 1000])}  # strides of zero
    content = foreign.torch_pickle(repeated).replace(b"J\x40\x42\x0f\x00", b"J\x01\x00\x00\x00")
    zip_with_pickle(tmp_path / "wide.bin", content, **{"0": b"1234"})
    with pytest.raises(CheckpointError, match="larger than its storage"):
        read_all(tmp_path / "wide.bin")


def test_damaged_numbers_are_noticed(tmp_path):
    path = tmp_path / "model.bin"
    foreign.write_torch(path, {"a": np.arange(100, dtype=np.float32)})
    content = bytearray(path.read_bytes())
    content[content.index(np.float32(50).tobytes())] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="checksum"):
        read_all(path)


@pytest.mark.peers
def test_files_of_pytorch_itself(tmp_path):
    torch = pytest.importorskip("torch", reason="needs transformers and PyTorch")
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state = {
        "plain": base,
        "view": base[1:3],
        "transposed": base.T,
        "half": base.half(),
        "bfloat16": base.bfloat16(),
        "double": base.double(),
        "ids": torch.arange(5),
        "parameter": torch.nn.Parameter(base + 1),
        "scalar": torch.tensor(3.0),
    }
    for name, options in (
        ("new", {}),
        ("legacy", {"_use_new_zipfile_serialization": False}),
        ("protocol4", {"pickle_protocol": 4}),
    ):
        for content in (state, {"state_dict": state, "epoch": 3, "lr": 0.5}):
            torch.save(content, tmp_path / name, **options)
            values = read_all(tmp_path / name)
            assert values.keys() == state.keys()
            for key, value in state.items():
                expected = value.detach().float().numpy()
                np.testing.assert_array_equal(values[key].astype(np.float32), expected)
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    torch.save(module.state_dict(), tmp_path / "module")
    np.testing.assert_array_equal(
        read_all(tmp_path / "module")["0.weight"], module[0].weight.detach().numpy()
    )
    torch.save(module, tmp_path / "whole")  # a pickled module: its classes would be imported
    with pytest.raises(CheckpointError, match="would import"):
        TorchSource(str(tmp_path / "whole"))


# Forty tuples, each of the one before twice: no list of them is ever written down.
_DOUBLED = b"\x80\x02K\x01" + b"".join(b"q%c0h%ch%c\x86" % (3 * (i,)) for i in range(40))


@pytest.mark.parametrize("ends", [b".", b"\x8c\x01a\x93."], ids=["version", "name"])
def test_a_value_that_is_too_large_to_show(tmp_path, ends):
    path = tmp_path / "pytorch_model.bin"
    foreign.write_legacy_torch(path, foreign.random_tensors())
    foreign.write_config(tmp_path)
    magic = path.read_bytes()[: path.read_bytes().index(b".") + 1]
    path.write_bytes(magic + _DOUBLED + ends)
    with pytest.raises(CheckpointError) as refused:
        BertBackbone.from_pretrained(tmp_path)
    assert len(str(refused.value)) < 1000
