"""Reads files in the safetensors format, Hugging Face's and this package's.

Files are memory-mapped. The safetensors library checks the header. The format has no checksums;
files that bert_tf writes have one per tensor in their metadata (`array_files.py`).

Reference: https://github.com/huggingface/safetensors (8 bytes of header length, JSON header, data).
"""

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_tf.array_files import CHECKSUMS_KEY, checksum
from bert_tf.checkpoints.readers.stored_zip import map_file, release_pages
from bert_tf.errors import CheckpointError
from bert_tf.json_files import parse_json
from bert_tf.json_schema import integer, mapping_of

_CHECKSUMS = mapping_of(integer(most=2**32 - 1))
_LENGTH_SIZE = 8
_FLOAT_TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


class SafetensorsSource:
    """Reads one safetensors file with the tensor names of a `format`. A `TensorSource`.

    Raises:
        CheckpointError: If the file is damaged.
    """

    def __init__(self, path: str, format: str = "huggingface"):
        self.path = path
        self.format = format
        try:
            self._file = safe_open(path, framework="numpy")
            names = list(self._file.keys())
            slices = {name: self._file.get_slice(name) for name in names}
            self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            self._types = {name: part.get_dtype() for name, part in slices.items()}
            self._checksums = _checksums(self._file.metadata(), self.shapes, path)
            self._map = map_file(path)
            self._start = _LENGTH_SIZE + int.from_bytes(self._map[:_LENGTH_SIZE], "little")
            self._header = parse_json(self._map[_LENGTH_SIZE : self._start], path)
        except CheckpointError:
            raise
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} must be a complete safetensors file. Received: {error}. Download it again."
            ) from None

    def read(self, name: str) -> np.ndarray:
        release_pages(self._map)
        try:
            is_float = self._types[name] in _FLOAT_TYPES
            values = self._view(name) if is_float else self._file.get_tensor(name)
        except (SafetensorError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise CheckpointError(
                f"`{name}` in {self.path} must be float32, float16, bfloat16 or float64. Received: "
                f"{self._types[name]} ({error})"
            ) from None
        if self._checksums is not None and self._checksums.get(name) != checksum(values):
            raise CheckpointError(
                f"`{name}` in {self.path} must have the checksum in the file's metadata. Received: "
                "another checksum. The file is damaged; download it again."
            )
        return values

    def _view(self, name):
        """Returns the tensor as a view of the mapped file."""
        first, end = self._header[name]["data_offsets"]
        content = memoryview(self._map)[self._start + first : self._start + end]
        values = np.frombuffer(content, np.dtype(_FLOAT_TYPES[self._types[name]]))
        return values.reshape(self.shapes[name])


def _checksums(metadata, shapes, path):
    text = (metadata or {}).get(CHECKSUMS_KEY)
    if text is None:
        return None
    checksums = parse_json(text, f"{path}, {CHECKSUMS_KEY}", _CHECKSUMS)
    if checksums.keys() != shapes.keys():
        raise CheckpointError(
            f"{path} must hold the tensors that `{CHECKSUMS_KEY}` in its metadata lists. Received: "
            "other tensors. The file is damaged; download it again."
        )
    return checksums
