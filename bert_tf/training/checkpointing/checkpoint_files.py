"""The files of a training checkpoint: a directory that is there whole or not at all.

    ckpt-1200/variables.safetensors   every variable of the model and of the optimizer
    ckpt-1200/state.json              the step, the metrics, the configuration
    ckpt-1200/manifest.json           size and SHA-256 of the two others

The directory is written under another name and renamed when everything is on the disk, so a kill
leaves no half of one. The manifest finds what a full disk, a bad copy or a bad disk did to it.
"""

import hashlib
import json
import os
import re

import numpy as np

from bert_tf.errors import CheckpointError
from bert_tf.files import atomic_path
from bert_tf.json_files import read_json
from bert_tf.json_schema import OBJECT, Kind, integer, object_of, one_of

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
_STATE = object_of({"step": integer(most=2**63 - 1), "network": OBJECT, "settings": OBJECT})
_NAME = re.compile(r"ckpt-(\d+)")


class DamagedCheckpoint(CheckpointError):
    """A checkpoint whose files are not the ones that were written."""


def checkpoint_path(directory: str | os.PathLike, step: int) -> str:
    """Where the checkpoint of `step` stands."""
    return os.path.join(directory, f"ckpt-{step}")


def checkpoint_steps(directory: str | os.PathLike) -> list[int]:
    """The steps that have a checkpoint in `directory`, whole or damaged, in rising order."""
    if not os.path.isdir(directory):
        return []
    matches = (_NAME.fullmatch(name) for name in os.listdir(directory))
    return sorted(int(match[1]) for match in matches if match)


def write_checkpoint(
    directory: str | os.PathLike, step: int, tensors: dict[str, np.ndarray], state: dict
) -> str:
    """Writes `ckpt-<step>` into `directory`, whole or not at all.

    Args:
        directory: Made if missing.
        step: The number in the name.
        tensors: Values by name, of any shape and of any dtype that safetensors knows.
        state: Whatever else belongs to it; plain JSON values.

    Returns:
        The path of the checkpoint.

    Raises:
        CheckpointError: If it could not be written. Older checkpoints are as they were.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path = checkpoint_path(directory, step)
    try:
        with atomic_path(path) as new:
            os.mkdir(new)
            save_file(
                {name: np.asarray(value, order="C") for name, value in tensors.items()},
                os.path.join(new, VARIABLES),
            )
            _write_json(os.path.join(new, STATE), state)
            files = {name: _fingerprint(os.path.join(new, name)) for name in (VARIABLES, STATE)}
            _write_json(os.path.join(new, MANIFEST), {"format": FORMAT, "files": files})
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        older = checkpoint_steps(directory)
        kept = f"ckpt-{older[-1]} is the newest" if older else "there is none yet"
        raise CheckpointError(
            f"The checkpoint {path} could not be written: {reason}. Older checkpoints are as they "
            f"were: {kept}. Make room or choose another directory, and start again."
        ) from None
    return path


def read_checkpoint(path: str | os.PathLike) -> tuple[dict[str, np.ndarray], dict]:
    """The tensors and the state that `write_checkpoint` was given.

    Raises:
        DamagedCheckpoint: If a file is missing, cut short or changed.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    manifest = read_json(os.path.join(path, MANIFEST), _MANIFEST, DamagedCheckpoint)
    for name, expected in manifest["files"].items():
        file = os.path.join(path, name)
        size = os.path.getsize(file) if os.path.exists(file) else None
        if size != expected["bytes"]:
            received = "no file" if size is None else f"{size:,}"
            raise DamagedCheckpoint(
                f"{file}: {expected['bytes']:,} bytes were expected. Received: {received}"
            )
        if _fingerprint(file) != expected:
            raise DamagedCheckpoint(f"{file}: its SHA-256 is not the manifest's")
    try:
        tensors = load_file(os.path.join(path, VARIABLES))
    except (SafetensorError, OSError) as error:
        raise DamagedCheckpoint(f"{path}: {VARIABLES}: {error}") from None
    # Settings are the user's own: Python writes infinity among them, and reads it.
    state = read_json(os.path.join(path, STATE), _STATE, DamagedCheckpoint, only_finite=False)
    return tensors, state


def _fingerprint(path) -> dict:
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256") if hasattr(hashlib, "file_digest") else None
        if digest is None:  # Python 3.10
            digest = hashlib.sha256()
            while block := file.read(1 << 20):
                digest.update(block)
        return {"bytes": os.path.getsize(path), "sha256": digest.hexdigest()}


def _write_json(path, values):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2, ensure_ascii=False)
        file.write("\n")
