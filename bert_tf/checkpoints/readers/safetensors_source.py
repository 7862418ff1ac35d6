"""Files in the safetensors format, memory-mapped: Hugging Face's and our own.

The library checks the header: its length, that offsets fit the shapes, overlap nowhere and leave no
holes. The format has no checksums; files that bert_tf writes carry one a tensor in their metadata.

Reference: https://github.com/huggingface/safetensors (8 bytes of header length, JSON header, data).
"""

import json
import mmap
import zlib

import numpy as np

from bert_tf.checkpoints.readers.stored_zip import release_pages
from bert_tf.errors import CheckpointError
from bert_tf.json_files import parse_json
from bert_tf.json_schema import integer, mapping_of

# The key of the header's `__metadata__` under which bert_tf writes {tensor: crc32 of its bytes}.
CHECKSUMS_KEY = "bert_tf_crc32"
_CHECKSUMS = mapping_of(integer(most=2**32 - 1))
_LENGTH_SIZE = 8
_FLOAT_TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


class SafetensorsSource:
    """Reads one safetensors file. A `TensorSource`.

    Args:
        path: The file.
        format: The column of the table of weight names: "huggingface" or "bert_tf".

    Raises:
        CheckpointError: If the file is truncated or not of the format.
    """

    def __init__(self, path: str, format: str = "huggingface"):
        from safetensors import SafetensorError, safe_open

        self.path = path
        self.format = format
        try:
            self._file = safe_open(path, framework="numpy")
            names = list(self._file.keys())
            slices = {name: self._file.get_slice(name) for name in names}
            self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            self._types = {name: part.get_dtype() for name, part in slices.items()}
            self._checksums = _checksums(self._file.metadata(), self.shapes, path)
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._start = _LENGTH_SIZE + int.from_bytes(self._map[:_LENGTH_SIZE], "little")
            self._header = parse_json(self._map[_LENGTH_SIZE : self._start], path)
        except CheckpointError:
            raise
        except (SafetensorError, OSError, ValueError) as error:
            raise CheckpointError(
                f"{path} is not a whole safetensors file ({error}). Fetch it again."
            ) from None

    def read(self, name: str) -> np.ndarray:
        from safetensors import SafetensorError

        release_pages(self._map)
        try:
            if self._types[name] in _FLOAT_TYPES:
                values = self._view(name)
            else:
                values = self._file.get_tensor(name)
        except (SafetensorError, TypeError, ValueError, AttributeError, KeyError) as error:
            raise CheckpointError(
                f"{self.path}: {name} cannot be read as {self._types[name]} ({error}). Expected "
                "float32, float16, bfloat16 or float64."
            ) from None
        if self._checksums is not None and self._checksums.get(name) != checksum(values):
            raise CheckpointError(
                f"{self.path}: {name} is damaged: its checksum is not the one that was written. "
                "Fetch the file again."
            )
        return values

    def _view(self, name):
        """The tensor where it stands in the mapped file, without a copy."""
        import ml_dtypes  # noqa: F401  registers bfloat16 with numpy

        first, end = self._header[name]["data_offsets"]
        values = np.frombuffer(
            memoryview(self._map)[self._start + first : self._start + end],
            np.dtype(_FLOAT_TYPES[self._types[name]]),
        )
        return values.reshape(self.shapes[name])


def checksum(values: np.ndarray) -> int:
    """The crc32 of an array's bytes, in C order."""
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8))


def write_safetensors(path: str, tensors: dict[str, np.ndarray]) -> None:
    """Writes a safetensors file whose metadata hold the tensors' checksums.

    Raises:
        OSError: If it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    checksums = {name: checksum(values) for name, values in tensors.items()}
    metadata = {"format": "pt", CHECKSUMS_KEY: json.dumps(checksums)}
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(f"{path} could not be written: {error}") from error


def _checksums(metadata, shapes, path):
    text = (metadata or {}).get(CHECKSUMS_KEY)
    if text is None:
        return None
    checksums = parse_json(text, f"{path}, {CHECKSUMS_KEY}", _CHECKSUMS)
    if checksums.keys() != shapes.keys():
        raise CheckpointError(
            f"{path} is damaged: its tensors are not those that were written. Fetch it again."
        )
    return checksums
