"""The peer zentorch, AMD's plug-in for PyTorch: another backend of torch.compile.

Its README recommends the backend for Hugging Face's encoders, with freezing by a variable of the
environment (in `peers/__init__.py`); with freezing it prepacks the weights and merges the matmuls
of query, key and value.
"""

import zentorch

from .torch_compile import TorchCompile


class ZenTorch(TorchCompile):
    """PyTorch with torch.compile and zentorch's backend."""

    version = f"{zentorch.__version__}, torch {TorchCompile.version}"
    INFERENCE = {"backend": "zentorch"}
