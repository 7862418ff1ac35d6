"""Reads files in the safetensors format, Hugging Face's and this package's.

Files are memory-mapped. The safetensors library checks the header. The format has no checksums;
files that bert_tf writes have one per tensor in their metadata (`array_files.py`).

Reference: https://github.com/huggingface/safetensors (8 bytes of header length, JSON header, data).
"""

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_tf.base.array_files import CHECKSUMS_KEY, checksum
from bert_tf.base.file_errors import complete_file, file_error, tensor_error
from bert_tf.base.json_files import parse_json
from bert_tf.base.json_schema import integer, mapping_of
from bert_tf.checkpoints.readers.stored_zip import map_file, release_pages

_CHECKSUMS = mapping_of(integer(most=2**32 - 1))
_LENGTH_SIZE = 8
_FLOAT_TYPES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}


class SafetensorsSource:
    """Reads one safetensors file with the tensor names of a `format`. A `TensorSource`.

    Attributes:
        holds_tf_variables: Whether a TensorFlow model of `transformers` wrote it, whose tensors
            have other names and layouts than PyTorch's.

    Raises:
        CheckpointError: If the file is damaged.
    """

    def __init__(self, path: str, format: str = "huggingface"):
        self.path = path
        self.format = format
        with complete_file(path, "a complete safetensors file"):
            self._map = map_file(path)
            self._file = safe_open(path, framework="numpy")
            # `safe_open` has checked the header, which is parsed again for the offsets.
            self._start = _LENGTH_SIZE + int.from_bytes(self._map[:_LENGTH_SIZE], "little")
            self._header = parse_json(self._map[_LENGTH_SIZE : self._start], path)
            metadata = self._header.pop("__metadata__", None)
            self.holds_tf_variables = (metadata or {}).get("format") == "tf"
            self.shapes = {name: tuple(entry["shape"]) for name, entry in self._header.items()}
            self._checksums = _checksums(metadata, self.shapes, path)

    def read(self, name: str) -> np.ndarray:
        release_pages(self._map)
        kind = self._header[name]["dtype"]
        try:
            if kind in _FLOAT_TYPES:  # a view of the mapped file
                first, end = self._header[name]["data_offsets"]
                content = memoryview(self._map)[self._start + first : self._start + end]
                values = np.frombuffer(content, _FLOAT_TYPES[kind]).reshape(self.shapes[name])
            else:
                values = self._file.get_tensor(name)
        except (SafetensorError, TypeError, ValueError, AttributeError, KeyError) as error:
            expected = "be float32, float16, bfloat16 or float64"
            raise tensor_error(self, name, expected, f"{kind} ({error})") from None
        if self._checksums is not None and self._checksums.get(name) != checksum(values):
            received = "another checksum. The file is damaged; download it again."
            raise tensor_error(self, name, "have the checksum in the file's metadata", received)
        return values


def _checksums(metadata, shapes, path):
    text = (metadata or {}).get(CHECKSUMS_KEY)
    if text is None:
        return None
    checksums = parse_json(text, f"{path}, {CHECKSUMS_KEY}", _CHECKSUMS)
    if checksums.keys() != shapes.keys():
        expected = f"hold the tensors that `{CHECKSUMS_KEY}` in its metadata lists"
        received = "other tensors. The file is damaged; download it again."
        raise file_error(path, expected, received)
    return checksums
