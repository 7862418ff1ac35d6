"""Hugging Face's `model.safetensors`, memory-mapped.

Format: https://github.com/huggingface/safetensors (8 bytes of header length, JSON header, data).
"""

import numpy as np

from bert_tf.errors import CheckpointError

# The float types of the format that numpy and ml_dtypes know, and what they are read as.
_FLOAT_TYPES = ("F16", "BF16", "F32", "F64")


class SafetensorsSource:
    """Reads one safetensors file. A `TensorSource`.

    Raises:
        CheckpointError: If the file is truncated or not of the format.
    """

    names_attribute = "huggingface"

    def __init__(self, path: str):
        from safetensors import SafetensorError, safe_open

        self.path = path
        try:
            self._file = safe_open(path, framework="numpy")
            slices = {name: self._file.get_slice(name) for name in self._file.keys()}
            self.shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            self._types = {name: part.get_dtype() for name, part in slices.items()}
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path} is not a whole safetensors file ({error}). Fetch it again."
            ) from None

    def read(self, name: str) -> np.ndarray:
        if self._types[name] == "BF16":
            import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
        values = self._file.get_tensor(name)
        return values.astype(np.float32) if self._types[name] in _FLOAT_TYPES else values
