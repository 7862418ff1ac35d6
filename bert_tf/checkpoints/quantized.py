"""Quantized weights in this package's own format.

In place of a float32 tensor there are two: the integers, int8 of the same shape and name, and their
float32 scales, under the name with `_scale` at the end: a column's of a kernel `[in, out]`, a
word's of the word embeddings `[V, H]`.
"""

from collections.abc import Callable, Iterator

import keras
import numpy as np

from bert_tf.checkpoints.tensor_source import TensorSource
from bert_tf.errors import CheckpointError

_SCALE = "_scale"
_WORDS = "embeddings.word_embeddings"


def quantized_tensors(backbone) -> dict[str, np.ndarray]:
    """What the file holds of a quantized backbone's integers; {} of another backbone."""
    tensors = {}
    for name, (read, _) in _places(backbone):
        tensors[name], tensors[name + _SCALE] = (part.numpy() for part in read())
    return tensors


def quantized_variables(backbone) -> list[keras.Variable]:
    """The variables that `quantized_tensors` is made of."""
    if backbone.quantization is None:
        return []
    embeddings = backbone.embeddings
    variables = [embeddings.word_embeddings, embeddings.word_embeddings_scale]
    for block in backbone.encoder.blocks:
        for dense in block.dense_layers().values():
            variables += [dense.packed_kernel, dense.kernel_scale, dense.kernel_column_sums]
    return variables


def restore_quantized(backbone, source: TensorSource) -> list[str]:
    """Reads the integers and scales of a quantized backbone.

    Returns:
        The names of the tensors that were read.

    Raises:
        CheckpointError: If a tensor is missing, of another shape or type, or damaged.
    """
    names = []
    for name, (read, write) in _places(backbone):
        values, scale = (np.asarray(part) for part in read())
        parts = []
        for part_name, like in ((name, values), (name + _SCALE, scale)):
            if source.shapes.get(part_name) != like.shape:
                raise CheckpointError(
                    f"{source.path}: expected {part_name} of shape {list(like.shape)}. Received: "
                    f"{source.shapes.get(part_name, 'no such tensor')}"
                )
            part = source.read(part_name)
            is_finite = part.dtype.kind != "f" or np.isfinite(part).all()
            if part.dtype != like.dtype or not is_finite:
                raise CheckpointError(
                    f"{source.path}: expected {part_name} of finite {like.dtype} numbers. "
                    f"Received: {part.dtype}"
                )
            parts.append(np.array(part))  # not a view of the file
            names.append(part_name)
        write(*parts)
    return names


def _places(backbone) -> Iterator[tuple[str, tuple[Callable, Callable]]]:
    """The names, with a function each to read the integers and scales and to replace them."""
    if backbone.quantization is None:
        return
    embeddings = backbone.embeddings
    yield _WORDS, (
        lambda: (embeddings.word_embeddings.value, embeddings.word_embeddings_scale.value),
        embeddings.set_quantized_words,
    )
    for index, block in enumerate(backbone.encoder.blocks):
        for place, dense in block.dense_layers().items():
            yield f"encoder.blocks.{index}.{place}.kernel", (
                dense.quantized_kernel, dense.set_quantized_kernel
            )
