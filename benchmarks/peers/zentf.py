"""The peer zentf, AMD's plug-in for TensorFlow, with the encoder of plain TensorFlow.

TensorFlow loads the plug-in from its own environment. It replaces matmuls, batched matmuls and
softmax in graphs by its ops if variables of the environment (in `peers/__init__.py`) say so.
"""

import tensorflow as tf
import zentf

from .tensorflow_2d import TensorFlow2D


class ZenTF(TensorFlow2D):
    """Plain TensorFlow with zentf's ops."""

    version = f"{zentf.__version__}, tensorflow {tf.__version__}"
