"""Chooses the form of an encoder's kernels for inference by measuring blocks of the encoder.

Which form is the fastest depends on the processor, on the number of threads and on the sizes of the
model. `measure` makes a table of seconds, and `pick` decides by it. A process keeps its tables: the
processor and the number of threads stay the same, so a second model of the same sizes is not timed.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.dense import Dense
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.kernels import FloatKernel
from bert_tf.layers.quantization import BFLOAT16
from bert_tf.ops.native import has_bfloat16_products

PLAIN, FLOAT32 = "plain", "float32"

BATCHES = ((1, 1), (1, 16), (1, 128), (4, 128))  # [B, T], from one token to several texts
# Each batch is timed this often in each form, or less often if that takes more than these seconds
# of processor time: about two seconds for BERT-base with AVX2.
_FEWEST_ROUNDS, _MOST_ROUNDS, _SECONDS = 4, 16, 0.5
# What takes up to this many times the plain time is not slower: so far apart are two measurements
# of the same form on a busy machine.
NOISE = 1.1
_DOUBT = 3  # what seems slower is timed so many times as long: another program may have run
# Blocks take turns, so that their weights come from memory, as in the model, and not from a cache.
# The bytes limit the memory of the prepacked copies.
_MOST_BLOCKS, _MOST_BYTES = 3, 64 << 20

_logger = logging.getLogger("bert_tf")
_tables: dict[tuple, dict[int, dict[str, float]]] = {}
_lock = threading.Lock()


def choose(blocks: Sequence[BertEncoderBlock]) -> str:
    """Returns the fastest form of the blocks' plain kernels, and logs the table.

    "plain" leaves them as they are, "float32" prepacks them in the compute dtype, and "bfloat16",
    which is timed only if the processor has AVX512-BF16, rounds them too. Without that instruction
    bfloat16 is faster for very short texts only. If there are no plain kernels, the processor alone
    decides.
    """
    blocks = [block for block in blocks if _plain_layers(block)]
    if not blocks:
        return BFLOAT16 if has_bfloat16_products() else FLOAT32
    table = table_of(blocks)
    form = pick(table)
    milliseconds = {
        rows: {name: round(1e3 * value, 2) for name, value in seconds.items()}
        for rows, seconds in table.items()
    }
    text = "The fastest kernels are %s. Milliseconds of a block by its number of tokens: %s"
    _logger.info(text, form, milliseconds)
    return form


def table_of(blocks: Sequence[BertEncoderBlock]) -> dict[int, dict[str, float]]:
    """Returns the table of blocks like the first one, which is measured once in a process."""
    block = blocks[0]
    dtypes = {PLAIN: None, FLOAT32: block.compute_dtype}
    if has_bfloat16_products():
        dtypes[BFLOAT16] = BFLOAT16
    key = (*_sizes(block), block.config.hidden_act, *dtypes.items())
    with _lock:
        if key not in _tables:
            _tables[key] = measure([b for b in blocks if _sizes(b) == _sizes(block)], dtypes)
        return _tables[key]


def pick(table: Mapping[int, Mapping[str, float]]) -> str:
    """Returns the form with the least sum of ratios to "plain" that is slower for no size.

    The table has the seconds of each form for each number of rows.
    """
    forms = next(iter(table.values()))
    ratios = {form: [row[form] / row[PLAIN] for row in table.values()] for form in forms}
    never_slower = [form for form in forms if max(ratios[form]) <= NOISE]
    return min(never_slower, key=lambda form: sum(ratios[form]))


def measure(
    blocks: Sequence[BertEncoderBlock], dtypes: Mapping[str, str | None]
) -> dict[int, dict[str, float]]:
    """Returns the least processor seconds of a block for each number of rows and form.

    Unlike the time that passes, processor time depends little on other programs.

    Args:
        blocks: Blocks of the same sizes.
        dtypes: The dtype in which each form prepacks the kernels. None leaves them plain.
    """
    size = sum(4 * math.prod(variable.shape) for variable in blocks[0].variables)
    blocks = blocks[: max(1, min(_MOST_BLOCKS, _MOST_BYTES // size))]
    calls = {form: [_traced(block, dtypes[form]) for block in blocks] for form in dtypes}
    table = {}
    for batch, length in BATCHES:
        rows = tf.ones([batch * length, blocks[0].config.hidden_size], blocks[0].compute_dtype)
        mask = tf.ones([batch, length], tf.bool)
        shortest, spent = dict.fromkeys(calls, math.inf), 0.0
        for turn in range(_DOUBT * _MOST_ROUNDS):
            doubt = _DOUBT if max(shortest.values()) > NOISE * shortest[PLAIN] else 1
            is_enough = turn >= doubt * _MOST_ROUNDS or spent > doubt * _SECONDS
            if is_enough and turn >= _FEWEST_ROUNDS:
                break
            for form in calls:
                start = time.process_time()
                calls[form][turn % len(blocks)](rows, mask)
                seconds = time.process_time() - start
                shortest[form], spent = min(shortest[form], seconds), spent + seconds
        table[batch * length] = shortest
    return table


def _traced(block: BertEncoderBlock, dtype: str | None) -> Callable:
    """Returns a graph of the block, with prepacked copies of its kernels unless dtype is None."""
    layers = _plain_layers(block)
    own = [layer.kernel_impl for layer in layers]
    rows = tf.TensorSpec([None, block.config.hidden_size], block.compute_dtype)  # [R, H]
    mask = tf.TensorSpec([None, None], tf.bool)  # [B, T]
    call = tf.function(
        lambda rows, mask: block(rows, layout=TokenLayout.packed(mask)), autograph=False
    )
    try:
        if dtype is not None:
            for layer in layers:
                layer.kernel_impl = layer.prepacked(dtype)
        return call.get_concrete_function(rows, mask)
    finally:
        for layer, kernel_impl in zip(layers, own, strict=True):
            layer.kernel_impl = kernel_impl


def _plain_layers(block: BertEncoderBlock) -> list[Dense]:
    layers = block.dense_layers().values()
    return [layer for layer in layers if isinstance(layer.kernel_impl, FloatKernel)]


def _sizes(block: BertEncoderBlock) -> tuple:
    """Returns the names and shapes of the variables, by which one can tell the forms of kernels."""
    return tuple((variable.name, tuple(variable.shape)) for variable in block.variables)
