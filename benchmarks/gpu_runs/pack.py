"""Packs folders into parts for a machine without network, and joins them there.

    python -m benchmarks.gpu_runs.pack gpu_parts step  # for run 2
    python -m benchmarks.gpu_runs.pack gpu_parts env/lib/python3.12/site-packages  # for run 3
    python3 -m benchmarks.gpu_runs.pack --join gpu_parts /tmp/joined  # there

A shared object keeps its size but loses what does not run there, which then takes no space in the
parts: symbol tables, and the machine code of GPUs other than --architecture. Files that no program
imports are left out. The parts are numbered; --join needs all of them, and checks their sums.
"""

import argparse
import concurrent.futures
import hashlib
import io
import json
import lzma
import os
import pathlib
import struct
import sys
import tarfile
import tempfile
import time

LEFT_OUT = (
    "tensorflow/include", "clang", "pip", "setuptools", "wheel", "__pycache__",
    "_distutils_hack", "grpc", "wrapt-stubs", "tests",
)  # fmt: skip
_BLOCK = 32 * 2**20  # bytes that one process compresses
_FILTERS = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 4}]
_FATBIN, _PTX, _CUBIN = 0xBA55ED50, 1, 2


def sections(elf: bytes) -> dict[str, tuple[int, int]]:
    """Returns the offset and the size of each section of a 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, start + entry * i) for i in range(count)]
    names = headers[names_at][4]
    return {
        elf[names + name : elf.index(b"\0", names + name)].decode(): (offset, size)
        for name, kind, _, _, offset, size in headers
        if kind != 8  # occupies no space
    }


def strip(elf: bytearray, architecture: int) -> int:
    """Overwrites with zeros what does not run on the architecture; returns how many bytes."""
    found, removed = sections(elf), 0
    for name in (".symtab", ".strtab"):
        offset, size = found.get(name, (0, 0))
        elf[offset : offset + size] = bytes(size)
        removed += size
    place, size = found.get(".nv_fatbin", (0, 0))
    end = place + size
    while place + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", elf, place)
        if magic != _FATBIN:
            place += 8  # between two programs there are zeros
            continue
        entries, place, stop = [], place + header, place + header + length
        while place < stop:
            kind, _, header, length = struct.unpack_from("<HHIQ", elf, place)
            (of,) = struct.unpack_from("<I", elf, place + 28)
            entries.append((kind, of, place + header, length))
            place += header + length
        kept = _kept(entries, architecture)
        for entry in entries:
            if entry not in kept:
                _, _, offset, length = entry
                elf[offset : offset + length] = bytes(length)
                removed += length
        place = stop
    return removed


def _kept(entries, architecture):
    """Returns the code of the newest of its generation, or else the newest PTX it can compile."""
    for kind, oldest in ((_CUBIN, architecture // 10 * 10), (_PTX, 0)):
        fitting = [
            each for each in entries if each[0] == kind and oldest <= each[1] <= architecture
        ]
        if fitting:
            return [each for each in fitting if each[1] == max(of for _, of, *_ in fitting)]
    return entries


def write_archive(file, folders, architecture: int) -> None:
    """Writes the files of the folders as a tar archive."""
    with tarfile.open(fileobj=file, mode="w") as archive:
        for folder in folders:
            for path in sorted(folder.rglob("*")):
                name = path.relative_to(folder).as_posix()
                if not path.is_file() or any(f"/{each}/" in f"/{name}" for each in LEFT_OUT):
                    continue
                content = bytearray(path.read_bytes())
                removed = strip(content, architecture) if content[:4] == b"\x7fELF" else 0
                if removed > 2**23:
                    print(f"{name}: {len(content):,} bytes, {removed:,} removed", flush=True)
                entry = archive.gettarinfo(path, name)
                entry.type, entry.size = tarfile.REGTYPE, len(content)
                archive.addfile(entry, io.BytesIO(content))


def compress(path: str, offset: int) -> bytes:
    """Compresses a block of a file."""
    with open(path, "rb") as file:
        file.seek(offset)
        return lzma.compress(file.read(_BLOCK), filters=_FILTERS)


def pack(parts: pathlib.Path, folders, architecture: int, part_bytes: int) -> None:
    parts.mkdir(parents=True, exist_ok=True)
    for path in parts.glob("part_*"):
        path.unlink()
    with tempfile.NamedTemporaryFile(dir=parts) as archive:
        write_archive(archive, folders, architecture)
        archive.flush()
        offsets = range(0, os.path.getsize(archive.name), _BLOCK)
        with concurrent.futures.ProcessPoolExecutor() as pool:
            blocks = list(pool.map(compress, [archive.name] * len(offsets), offsets))
    content = b"".join(blocks)
    pieces = [content[at : at + part_bytes] for at in range(0, len(content), part_bytes)]
    for number, piece in enumerate(pieces):
        (parts / f"part_{number}").write_bytes(piece)
        print(f"{parts}/part_{number}: {len(piece) / 2**20:.1f} MiB", flush=True)
    index = {
        "blocks": [len(block) for block in blocks],
        "parts": [hashlib.sha256(piece).hexdigest() for piece in pieces],
    }
    (parts / "index.json").write_text(json.dumps(index))


def join(parts: pathlib.Path, folder: pathlib.Path) -> None:
    """Unpacks the parts into a folder.

    Raises:
        ValueError: If a part is missing or damaged.
    """
    index = json.loads((parts / "index.json").read_text())
    pieces = []
    for number, expected in enumerate(index["parts"]):
        path = parts / f"part_{number}"
        piece = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(piece).hexdigest() != expected:
            raise ValueError(
                f"{path} must be part {number} of {len(index['parts'])} that index.json names. "
                f"Received: {len(piece)} bytes. Carry it again."
            )
        pieces.append(piece)
    content, blocks, place = b"".join(pieces), [], 0
    for size in index["blocks"]:
        blocks.append(content[place : place + size])
        place += size
    with tempfile.TemporaryFile() as archive:
        with concurrent.futures.ProcessPoolExecutor() as pool:
            for block in pool.map(lzma.decompress, blocks):
                archive.write(block)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as files:
            files.extractall(folder, filter="data")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", type=pathlib.Path, help="The folder of the parts.")
    parser.add_argument("folders", type=pathlib.Path, nargs="+", help="To pack, or to join into.")
    parser.add_argument("--join", action="store_true", help="Join the parts into a folder.")
    parser.add_argument("--architecture", type=int, default=90, help="Default: 90, for sm_90.")
    parser.add_argument("--part_mib", type=int, default=48, help="The size of a part. Default: 48.")
    flags = parser.parse_args()
    start = time.monotonic()
    if flags.join:
        join(flags.parts, *flags.folders)
    else:
        pack(flags.parts, flags.folders, flags.architecture, flags.part_mib * 2**20)
    print(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
