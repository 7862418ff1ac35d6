"""The files of a training checkpoint, a directory that is written atomically.

    ckpt-1200/variables.safetensors   all variables of the model and of the optimizer
    ckpt-1200/state.json              the step, the network, the settings
    ckpt-1200/manifest.json           the sizes and SHA-256 sums of the two other files

The manifest shows whether the files were damaged later, by copying or by a bad disk.
"""

import hashlib
import os
import re

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from bert_tf.base.array_files import write_safetensors
from bert_tf.base.files import atomic_path
from bert_tf.base.json_files import read_json, write_json
from bert_tf.base.json_schema import OBJECT, Kind, integer, list_of, may_lack, object_of, one_of
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import CheckpointError

VARIABLES, STATE, MANIFEST = "variables.safetensors", "state.json", "manifest.json"
FORMAT = 1

_SHA256 = Kind(
    "64 hexadecimal digits",
    lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None,
)
_FILE = object_of({"bytes": integer(most=2**63 - 1), "sha256": _SHA256}, only=True)
_MANIFEST = object_of(
    {"format": one_of(FORMAT), "files": object_of({VARIABLES: _FILE, STATE: _FILE}, only=True)}
)
# The first step and the length of the run that a schedule is spread over.
_RUN = list_of(integer(-(2**63), 2**63 - 1), least=2, most=2)
_STATE = object_of(
    {"step": integer(most=2**63 - 1), "network": OBJECT, "settings": OBJECT, "run": may_lack(_RUN)}
)
_NAME = re.compile(r"ckpt-(\d+)")


class DamagedCheckpoint(CheckpointError):
    """A checkpoint whose files are missing or have changed since they were written.

    Example:
        >>> try:
        ...     read_checkpoint("missing/ckpt-1")
        ... except DamagedCheckpoint as error:
        ...     print(error)
        missing/ckpt-1/manifest.json must be a JSON file. Received: No such file or directory.
    """


def checkpoint_path(directory: str | os.PathLike, step: int) -> str:
    """Returns the path of the checkpoint of `step`."""
    return os.path.join(directory, f"ckpt-{step}")


def checkpoint_steps(directory: str | os.PathLike) -> list[int]:
    """Returns the steps of all checkpoints in `directory`, also of damaged ones, sorted."""
    if not os.path.isdir(directory):
        return []
    matches = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


def newest_checkpoint(directory: str | os.PathLike) -> str | None:
    """Returns the path of the checkpoint with the highest step in `directory`, or None."""
    steps = checkpoint_steps(directory)
    return checkpoint_path(directory, steps[-1]) if steps else None


def write_checkpoint(
    directory: str | os.PathLike, step: int, tensors: dict[str, np.ndarray], state: dict
) -> None:
    """Writes `ckpt-<step>` atomically: the variables by name, and the values of `state.json`.

    The tensors have any shape and any dtype that safetensors supports. Raises `CheckpointError` if
    it cannot be written. Older checkpoints are not changed.
    """
    path = checkpoint_path(directory, step)
    try:
        with atomic_path(path) as new:
            os.mkdir(new)
            tensors = {name: np.asarray(value, order="C") for name, value in tensors.items()}
            write_safetensors(os.path.join(new, VARIABLES), tensors, checksums=False)
            write_json(os.path.join(new, STATE), state)
            files = {name: _fingerprint(os.path.join(new, name)) for name in (VARIABLES, STATE)}
            write_json(os.path.join(new, MANIFEST), {"format": FORMAT, "files": files})
    except OSError as error:
        newest = newest_checkpoint(directory)
        kept = f"{os.path.basename(newest)} is the newest" if newest else "there is none yet"
        raise CheckpointError(
            f"The checkpoint {path} could not be written: {error.strerror or error}. Older "
            f"checkpoints are not changed: {kept}. Make room or choose another directory, and "
            "start again."
        ) from None


def read_checkpoint(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict]:
    """Returns the tensors and the state that were passed to `write_checkpoint`.

    Raises `DamagedCheckpoint` if a file is missing, truncated or changed.
    """
    manifest = read_json(os.path.join(path, MANIFEST), _MANIFEST, DamagedCheckpoint)
    for name, expected in manifest["files"].items():
        file = os.path.join(path, name)
        size = os.path.getsize(file) if os.path.exists(file) else None
        if size != expected["bytes"]:
            received = "no file" if size is None else f"{size:,}"
            raise DamagedCheckpoint(
                f"{file} must have {expected['bytes']:,} bytes. Received: {received}"
            )
        try:
            found = _fingerprint(file)
        except OSError as error:
            raise DamagedCheckpoint(
                f"{file} must be readable. Received: {error.strerror}"
            ) from None
        if found != expected:
            raise DamagedCheckpoint(
                f"{file} must have the SHA-256 sum of the manifest. Received: another"
            )
    try:
        tensors = load_file(os.path.join(path, VARIABLES))
    except (SafetensorError, OSError) as error:
        raise DamagedCheckpoint(f"{path}: {VARIABLES}: {error}") from None
    # The settings of the user may contain infinity, which Python's JSON writes and reads.
    state = read_json(os.path.join(path, STATE), _STATE, DamagedCheckpoint, only_finite=False)
    return tensors, state


def _fingerprint(path) -> dict:
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return {"bytes": os.path.getsize(path), "sha256": digest.hexdigest()}
