"""Writes the log of a run as a file of JSON lines."""

import json
import os
import time

from bert_tf.base.files import atomic_path
from bert_tf.base.json_files import parse_json
from bert_tf.base.json_schema import integer, object_of
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import DataError, UserError

_LINE = object_of({"step": integer(most=2**63 - 1)})


class JsonLines:
    """Appends one JSON object per line: `step`, `time` (seconds since 1970) and the values.

    When a run is resumed, the lines of later steps are removed first, because these steps are
    repeated. A last line that is incomplete is removed too.

    Args:
        path: The file.
        initial_step: The step from which the run is resumed.

    Raises:
        DataError: If an existing file has a damaged line.

    Example:
        >>> log = bert_tf.training.callbacks.JsonLines("log.jsonl")
        >>> log.write(100, {"loss": 0.5})
        >>> bert_tf.training.callbacks.read_json_lines("log.jsonl")
        [{'step': 100, 'time': ..., 'loss': 0.5}]
    """

    def __init__(self, path: str | os.PathLike, initial_step: int = 0):
        self.path = os.fspath(path)
        if os.path.exists(self.path):
            lines = [line for line in read_json_lines(self.path) if line["step"] <= initial_step]
            with atomic_path(self.path) as new, open(new, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Appends a line. Raises `UserError` if the file cannot be written."""
        line = {"step": step, "time": round(time.time(), 3), **values}
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(
                f"{self.path} must be writable. Received at step {step}: {error.strerror}. Make "
                "room and start again: the run is resumed from its newest checkpoint."
            ) from None


def read_json_lines(path: str | os.PathLike) -> list[dict]:
    """Returns the objects of the file, without a last line that is incomplete.

    Raises:
        DataError: If the file cannot be read, or another line is damaged.

    Example:
        >>> bert_tf.training.callbacks.JsonLines("log.jsonl").write(100, {"loss": 0.5})
        >>> [line["loss"] for line in bert_tf.training.callbacks.read_json_lines("log.jsonl")]
        [0.5]
    """
    try:
        with open_regular(path) as file:
            lines = [line for line in file if line.endswith(b"\n")]
    except OSError as error:
        raise DataError(f"{path} must be a log of a run. Received: {error.strerror}.") from None
    # A loss can be NaN, which Python's JSON writes and reads.
    return [
        parse_json(line, f"{path}, line {number},", _LINE, DataError, only_finite=False)
        for number, line in enumerate(lines, start=1)
    ]
