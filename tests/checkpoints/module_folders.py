"""Directories of sentence-transformers whose encoder is in a folder, as its old versions wrote."""

import json
import pathlib

_OF_THE_ROOT = {"modules.json", "config_sentence_transformers.json"}


def move_encoder(directory: pathlib.Path, folder: str = "0_Transformer") -> None:
    """Moves the encoder of a directory with `modules.json` into a folder."""
    (directory / folder).mkdir()
    for path in directory.iterdir():
        if path.is_file() and path.name not in _OF_THE_ROOT:
            path.rename(directory / folder / path.name)
    modules = json.loads((directory / "modules.json").read_text())
    modules[0]["path"] = folder
    (directory / "modules.json").write_text(json.dumps(modules))
