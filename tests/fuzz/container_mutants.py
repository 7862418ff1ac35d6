"""Zip archives, pickles, safetensors and HDF5 files that lie, with right checksums and lengths."""

import io
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator

import h5py
import numpy as np

from tests.fuzz import byte_mutants

_SIZES = [
    0,
    1,
    -1,
    7,
    8,
    2**31,
    2**32,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
    10**30,
    1.5,
    "8",
    None,
    [],
]
_TYPES = [
    "F32",
    "F16",
    "BF16",
    "F64",
    "I64",
    "I8",
    "U8",
    "BOOL",
    "F8_E4M3",
    "C64",
    "X",
    "",
    7,
    None,
]


def zip_mutants(
    content: bytes, seed: int, members: dict[str, Callable[[bytes, int], Iterator[bytes]]]
) -> Iterator[bytes]:
    """Archives whose members are mutated and whose directory fits them.

    Args:
        content: A stored zip archive.
        seed: The same seed gives the same mutants.
        members: For the end of a member's name, what mutates such a member.
    """
    rng = random.Random(seed)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    streams = {
        name: mutate(files[name], rng.randrange(2**32))
        for name in files
        for end, mutate in members.items()
        if name.endswith(end)
    }
    while True:
        changed = dict(files)
        name, kind = rng.choice(sorted(streams)), rng.randrange(12)
        if kind == 0:
            del changed[rng.choice(sorted(changed))]
        elif kind == 1:
            changed[rng.choice(sorted(changed))] = changed[rng.choice(sorted(changed))]
        else:
            changed[name] = next(streams[name])
        buffer = io.BytesIO()
        compression = zipfile.ZIP_DEFLATED if kind == 2 else zipfile.ZIP_STORED
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            for name, values in changed.items():
                archive.writestr(name, values)
        yield buffer.getvalue()


# Whole instructions of a pickle, put where they do not belong.
_INSTRUCTIONS = [
    b".",
    b"(",
    b"t",
    b"}",
    b"]",
    b")",
    b"N",
    b"R",
    b"b",
    b"u",
    b"s",
    b"a",
    b"e",
    b"0",
    b"2",
    b"Q",
    b"\x85",
    b"\x86",
    b"\x87",
    b"\x94",
    b"\x93",
    b"h\x00",
    b"q\x00",
    b"j\xff\xff\xff\xff",
    b"r\xff\xff\xff\xff",
    b"J\xff\xff\xff\xff",
    b"J\xff\xff\xff\x7f",
    b"\x8a\x08" + b"\xff" * 7 + b"\x7f",
    b"\x8a\xff" + b"\x7f" * 255,
    b"cos\nsystem\n",
    b"ccollections\nOrderedDict\n",
    b"X\xff\xff\xff\xff",
    b"\x8d" + b"\xff" * 8,
    b"\x8b" + b"\xff" * 4,
    b"B\xff\xff\xff\x7f",
    b"I" + b"9" * 5000 + b"\n",
    b"(" * 1000,
    b"]" + b"\x85" * 1000,
    b"\x95" + b"\xff" * 8,
]


def pickle_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Pickles with instructions that are repeated, moved or of another kind."""
    rng = random.Random(seed)
    damaged = byte_mutants.mutants(content, seed)
    while True:
        if rng.random() < 0.5:
            yield next(damaged)
            continue
        mutant = bytearray(content)
        place = rng.randrange(len(mutant))
        mutant[place : place + rng.choice((0, 0, 1, 5))] = rng.choice(_INSTRUCTIONS)
        yield bytes(mutant)


def legacy_torch_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """The container before PyTorch 1.6: mostly its pickles, which come first."""
    rng = random.Random(seed)
    pickles = max(content.rfind(b"u.") + 1, 1)
    streams = (
        pickle_mutants(content[:pickles], seed),
        (head for head in byte_mutants.mutants(content[pickles : pickles + 2000], seed)),
    )
    while True:
        if rng.random() < 0.7:
            yield next(streams[0]) + content[pickles:]
        else:
            yield content[:pickles] + next(streams[1]) + content[pickles + 2000 :]


def safetensors_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Headers that are well formed and wrong."""
    rng = random.Random(seed)
    size = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + size]
    while True:
        values = json.loads(header)
        kind = rng.randrange(8)
        name = rng.choice(sorted(key for key in values if key != "__metadata__"))
        if kind == 0:
            values[name]["dtype"] = rng.choice(_TYPES)
        elif kind == 1:
            values[name]["shape"] = [rng.choice(_SIZES) for _ in range(rng.choice((0, 1, 2, 300)))]
        elif kind == 2 and values[name]["shape"]:
            values[name]["shape"][0] = rng.choice(_SIZES)
        elif kind == 3:
            values[name]["data_offsets"][rng.randrange(2)] = rng.choice(_SIZES)
        elif kind == 4:
            values["__metadata__"] = rng.choice(
                [
                    None,
                    [],
                    {},
                    {"format": 7},
                    {"bert_tf_crc32": "["},
                    {"bert_tf_crc32": "[" * 9999},
                    {"bert_tf_crc32": "{}"},
                    {"bert_tf_crc32": json.dumps({name: "x"})},
                ]
            )
        elif kind == 5:
            values[rng.choice(["", "\0", "é" * 99, "a/b"])] = values.pop(name)
        text = json.dumps(values).encode()
        if kind == 6:
            text = next(byte_mutants.mutants(text, rng.randrange(2**32)))
        length = len(text).to_bytes(8, "little")
        if kind == 7:
            length = rng.choice([size + 1, size - 1, 2**63, 2**40, 10**8, 0, 1]).to_bytes(
                8, "little"
            )
        yield length + text + content[8 + size :]


def h5_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """HDF5 files whose tree is another one: made with h5py, so all is well formed."""
    rng = random.Random(seed)
    while True:
        buffer = io.BytesIO(content)
        with h5py.File(buffer, "r+") as file:
            _change_tree(file, rng)
        yield buffer.getvalue()


def _change_tree(file, rng):
    names = []
    file.visit(names.append)
    datasets = [name for name in names if isinstance(file[name], h5py.Dataset)]
    name, other, kind = rng.choice(datasets), rng.choice(names), rng.randrange(11)
    shape = file[name].shape
    if kind == 7:
        file[name].attrs["dtype"] = rng.choice(["bfloat16", "float8", b"\xff", 7])
    elif kind == 8:
        holder = file[other]
        for key in list(holder.attrs) or ["weight_names"]:
            holder.attrs[key] = rng.choice([7, "x", [1, 2], b"\xff\xfe", "\u20ac" * 100])
    elif kind == 9:
        file[f"{other}-again"] = file[other]
    elif kind == 10 and isinstance(file[other], h5py.Group):
        file[f"{other}/circle"] = file["/"]
    else:
        del file[name]
        if kind == 0:
            file.create_dataset(name, (10**9, 10**9), "f4", chunks=(1, 4))
        elif kind == 1:
            file.create_dataset(
                name, shape, rng.choice(["f2", "f8", "i4", "S9", "c8", "u1", ">f4"])
            )
        elif kind == 2:
            file[name] = h5py.SoftLink(rng.choice(["/", ".", f"/{other}", "/absent"]))
        elif kind == 3:
            file[name] = h5py.ExternalLink("/dev/zero", "/")
        elif kind == 4:
            file.create_dataset(name, shape, h5py.string_dtype())
        elif kind == 5:
            values = np.full(shape, np.nan)
            file.create_dataset(name, data=values, compression="gzip" if shape else None)
        else:
            file.create_group(name)


def stored_number_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Copies in which a 32-bit or 64-bit number that occurs in the file is an extreme one."""
    rng = random.Random(seed)
    while True:
        mutant = bytearray(content)
        size = rng.choice((4, 8))
        place = rng.randrange(max(len(mutant) - size, 1)) // 4 * 4
        mutant[place : place + size] = struct.pack(
            {4: "<I", 8: "<Q"}[size], rng.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
        )
        yield bytes(mutant)
