"""TensorFlow for another processor: a cross compiler needs its headers and its libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PLATFORMS = ("manylinux_2_27", "manylinux_2_17", "manylinux2014")
NEEDED = ("tensorflow/include/", "tensorflow/libtensorflow_framework.so.2",
          "tensorflow/libtensorflow_cc.so.2")  # fmt: skip


def unpack_tensorflow(version: str, arch: str, cache: Path) -> Path:
    """Downloads the wheel of a TensorFlow, once, and unpacks what the ops are built against.

    Args:
        version: the version of TensorFlow: "2.21.0".
        arch: the processor, as wheels name it: "aarch64".
        cache: the folder of these downloads.

    Returns:
        The unpacked folder `tensorflow`.

    Raises:
        subprocess.CalledProcessError: pip has failed, and has printed why.
    """
    folder = cache / f"tensorflow-{version}-{arch}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", scratch]
            command += ["--only-binary=:all:", *(f"--platform={p}_{arch}" for p in PLATFORMS)]
            subprocess.run([*command, f"tensorflow=={version}"], check=True)
            (wheel,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                names = [name for name in archive.namelist() if name.startswith(NEEDED)]
                archive.extractall(Path(scratch) / "unpacked", names)
            os.replace(Path(scratch) / "unpacked", folder)
    return folder / "tensorflow"
