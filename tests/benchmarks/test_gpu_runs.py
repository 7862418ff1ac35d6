"""The prepared runs on a GPU: their time, their files, the parts that are carried, rehearsals."""

import json
import os
import struct
import subprocess
import sys
import time

import pytest

from benchmarks.cuda_kernels import build
from benchmarks.gpu_runs import compiled_step, pack, session, tensorflow_step
from tests.conftest import REPOSITORY

PROGRAM = "import sys, time; from benchmarks.gpu_runs import session\n"
PROGRAM += "run = session.Session('short', session.parser('').parse_args())\n"


def run_program(text, folder, minutes):
    flags = [f"--output_dir={folder}", f"--minutes={minutes}", "--rehearse"]
    command = [sys.executable, "-c", PROGRAM + text, *flags]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    found = json.loads((folder / "short.json").read_text())
    return done, found, (folder / "short.md").read_text()


def test_what_was_found_is_kept_when_the_time_ends(tmp_path):
    start = time.monotonic()
    text = "run.put('times', 'one', ms=1.25)\nrun.attempt('endless', lambda: time.sleep(60))"
    done, found, table = run_program(text, tmp_path, 0.02)
    assert done.returncode == 3
    assert time.monotonic() - start < 30
    assert found["tables"] == {"times": {"one": {"ms": 1.25}}}
    assert found["end"] == "its 1 s were over"
    assert "| one | 1.25 |" in table


def test_an_error_does_not_stop_the_next_measurement(tmp_path):
    text = "run.attempt('broken', lambda: 1 / 0)\nrun.attempt('late', print, least_seconds=1e6)\n"
    text += "run.put('times', 'two', ms=2.0)\nsys.exit(run.finish())"
    done, found, table = run_program(text, tmp_path, 1)
    assert done.returncode == 1
    assert found["problems"][0] == "broken: ZeroDivisionError: division by zero"
    assert "late: left out" in found["problems"][1]
    assert "complete" in found["end"]
    assert "| two | 2 |" in table
    assert "PROBLEM broken" in table


def test_the_table_has_all_columns():
    rows = {"one": {"ms": 1.0}, "two": {"GB/s": 2.0, "by": {"a": 1}}}
    found = {"run": "r", "rehearsal": False, "end": "e", "facts": {}, "problems": []}
    text = session.markdown(found | {"tables": {"t": rows}})
    assert "| t | ms | GB/s | by |" in text
    assert "| one | 1 |  |  |" in text
    assert "| two |  | 2 | a 1 |" in text


def fatbin(*codes):
    """A program for GPUs with codes (kind, architecture)."""
    entries = b""
    for kind, architecture in codes:
        header = struct.pack("<HHIQIIHHI", kind, 0, 64, 32, 0, 0, 0, 0, architecture)
        entries += header.ljust(64, b"h") + bytes([architecture]) * 32
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def elf(**contents):
    """An ELF file with these sections, of which only the headers that are read are right."""
    names = b"\0" + b"".join(f".{name}\0".encode() for name in (*contents, "shstrtab"))
    body, headers, name_at = bytes(64), [(0,) * 6], 1
    for name, content in [*contents.items(), ("shstrtab", names)]:
        headers.append((name_at, 1, 0, 0, len(body), len(content)))
        body += content
        name_at += len(name) + 2
    table = b"".join(struct.pack("<IIQQQQ", *header).ljust(64, b"\0") for header in headers)
    file = bytearray(body + table)
    file[:4] = b"\x7fELF"
    struct.pack_into("<Q", file, 0x28, len(body))
    struct.pack_into("<HHH", file, 0x3A, 64, len(headers), len(headers) - 1)
    return file


def test_only_code_for_the_architecture_is_packed():
    programs = [fatbin((2, 80), (2, 90), (1, 90)), fatbin((2, 80), (1, 70), (1, 120))]
    file = elf(text=b"t" * 8, nv_fatbin=programs[0] + bytes(8) + programs[1], symtab=b"s" * 24)
    before = bytes(file)
    removed = pack.strip(file, 90)
    assert len(file) == len(before)
    offset, size = pack.sections(file)[".nv_fatbin"]
    code = file[offset : offset + size]
    # The code for sm_90, and of the second program the PTX that the driver can compile.
    assert {each for each in (70, 80, 90, 120) if bytes([each]) * 32 in code} == {70, 90}
    assert code.count(bytes([90]) * 32) == 1
    assert removed == 24 + 4 * 32
    assert b"t" * 8 in file
    assert b"s" not in file[: -(64 * 5)].replace(b"shstrtab", b"").replace(b"symtab", b"")


def test_parts_are_joined(tmp_path):
    source, parts, joined = (tmp_path / name for name in ("source", "parts", "joined"))
    (source / "package" / "__pycache__").mkdir(parents=True)
    content = os.urandom(3000)
    (source / "package" / "numbers").write_bytes(content)
    (source / "package" / "library.so").write_bytes(elf(text=b"t" * 8, symtab=b"s" * 24))
    (source / "package" / "__pycache__" / "old").write_bytes(content)
    pack.pack(parts, [source], 90, part_bytes=1000)
    assert len(list(parts.glob("part_*"))) == 4
    pack.join(parts, joined)
    assert (joined / "package" / "numbers").read_bytes() == content
    assert not (joined / "package" / "__pycache__").exists()
    assert b"t" * 8 in (joined / "package" / "library.so").read_bytes()
    (parts / "part_2").unlink()
    with pytest.raises(ValueError, match="part_2 must be part 2 of 4 .* Received: 0 bytes"):
        pack.join(parts, tmp_path / "again")


def test_libraries_are_found_under_the_names_of_cuda_12(tmp_path):
    lib = tmp_path / "nvidia" / "cu13" / "lib"
    lib.mkdir(parents=True)
    for name in ("libcublas.so.13", "libcudart.so.12", "libcudart.so.13", "libcudnn.so.9"):
        (lib / name).write_bytes(b"")
    variables, found = tensorflow_step.environment(tmp_path, [tmp_path], tmp_path / "names")
    assert found["libcublas.so.12"] == str(lib / "libcublas.so.13")
    assert found["libcudart.so.12"] == str(lib / "libcudart.so.12")
    assert (tmp_path / "names" / "libcublas.so.12").resolve() == lib / "libcublas.so.13"
    assert variables["LD_LIBRARY_PATH"].startswith(f"{tmp_path / 'names'}:{lib}")


def rehearse(python, module, folder, *flags, environment=None):
    """Runs a rehearsal; returns its results."""
    command = [python, "-m", f"benchmarks.gpu_runs.{module}", "--rehearse", "--minutes=30"]
    done = subprocess.run(
        [*command, f"--output_dir={folder}", *flags],
        cwd=REPOSITORY,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    path = folder / f"{module}.json"
    assert path.is_file(), done.stdout
    found = json.loads(path.read_text())
    assert found["end"].startswith("complete"), done.stdout
    return found


@pytest.mark.full
def test_run_1_is_rehearsed(tmp_path):
    pytest.importorskip("torch", reason="needs transformers and PyTorch")
    try:
        build.open_library()
    except build.Missing as missing:
        pytest.skip(f"needs NVRTC: {missing}")
    cache = {"BERT_TF_CACHE_DIR": str(tmp_path / "cache")}
    flags = [f"--before={build.LIBRARY}"]
    found = rehearse(sys.executable, "kernels", tmp_path, *flags, environment=cache)
    assert found["tables"]["checks"]["so far"]["failures"] == 0
    rows = found["tables"]["milliseconds"]
    assert len(rows) == 6
    for row in rows.values():
        assert row["ours"] > 0
        assert row["before"] > 0
    # On a CPU it lacks cuDNN's properties, at most.
    assert [text for text in found["problems"] if not text.startswith("cuDNN's properties")] == []


@pytest.mark.full
def test_run_2_is_rehearsed(tmp_path):
    """A step of TensorFlow with our foreign functions, in the emulation, runs in JAX."""
    python = os.environ.get("BERT_TF_JAX_PYTHON")
    if not python:
        pytest.skip("needs JAX: BERT_TF_JAX_PYTHON names a Python with it")
    command = [sys.executable, "-m", "benchmarks.gpu_runs.export_step", "--tiny", "--emulated"]
    sizes = ["--num_hidden_layers=1", "--workload=2x16", f"--output_dir={tmp_path}/step"]
    subprocess.run([*command, *sizes], cwd=REPOSITORY, check=True)
    step = tmp_path / "step"
    pack.pack(tmp_path / "parts", [step], 90, part_bytes=2**24)
    pack.join(tmp_path / "parts", tmp_path / "joined")
    found = rehearse(python, "compiled_step", tmp_path, f"--step_dir={tmp_path}/joined")
    assert found["problems"] == []
    assert set(found["tables"]["step"]) == set(compiled_step.ARRANGEMENTS)
    assert found["tables"]["compared with plain"]["numbers of native"]["worst"] < 0.05


@pytest.mark.full
def test_run_3_is_rehearsed(tmp_path):
    found = rehearse(sys.executable, "tensorflow_step", tmp_path)
    assert found["problems"] == []
    assert len(found["tables"]["step"]) == 3
