"""LSTMs over the tokens of sequences, one on the outputs of another.

The LSTMs are Keras's. Keras's loop over the tokens is used on all devices: cuDNN's needs all
padding on the right and a token in each row.

Reference: Hochreiter and Schmidhuber 1997; Huang et al. 2015 (arXiv 1508.01991) and Lample et al.
2016 (arXiv 1603.01360) for tagging.
"""

import itertools
import types
from collections.abc import Sequence

import keras
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.base.keras_compat import QuickLayer
from bert_tf.errors import UserError, require
from bert_tf.layers.pooling import first_token, last_columns


@keras.saving.register_keras_serializable(package="bert_tf")
class StackedLSTM(QuickLayer):
    """LSTMs in one or both directions; each layer takes the outputs of the one before.

    Padding, which may be anywhere, changes nothing: an LSTM keeps its state there.

    Args:
        units: U, the number of units of an LSTM, or a list with that of each layer.
        bidirectional: Whether each layer also has an LSTM from the last token to the first.

    Call arguments:
        states: `[B, T, H]`.
        padding_mask: bool `[B, T]`, True for real tokens.

    Returns:
        `[B, T, W]` with W = U of the last layer, or 2U in both directions, the forward one first;
        zeros for padding.

    Raises:
        UserError: If `units` are not positive integers.

    Example:
        >>> lstm = bert_tf.layers.StackedLSTM([8, 4])
        >>> lstm(tf.ones([2, 3, 16]), tf.constant([[True, True, False]] * 2)).shape
        TensorShape([2, 3, 8])
    """

    def __init__(self, units: int | Sequence[int], bidirectional: bool = True, **kwargs):
        super().__init__(**kwargs)
        self.units = unit_list(units)
        self.bidirectional = bidirectional
        self.forward = [self._lstm(f"forward_{i}", n) for i, n in enumerate(self.units)]
        self.backward = []
        if bidirectional:
            self.backward = [self._lstm(f"backward_{i}", n) for i, n in enumerate(self.units)]

    def _lstm(self, name, units):
        options = {"return_sequences": True, "use_cudnn": False, "dtype": self.dtype_policy}
        return keras.layers.LSTM(units, recurrent_initializer=_orthogonal, name=name, **options)

    @property
    def width(self) -> int:
        """W."""
        return self.units[-1] * (2 if self.bidirectional else 1)

    @property
    def blocks(self) -> list[types.SimpleNamespace]:
        """The cells of each layer, `forward` and `backward`, which is None in one direction."""
        pairs = itertools.zip_longest(self.forward, self.backward)
        return [
            types.SimpleNamespace(forward=one.cell, backward=other and other.cell)
            for one, other in pairs
        ]

    def build(self, states_shape, padding_mask_shape=None):
        width = states_shape[-1]
        for lstms in itertools.zip_longest(self.forward, self.backward):
            for lstm in filter(None, lstms):
                lstm.build([None, None, width])
            width = sum(lstm.units for lstm in filter(None, lstms))
        self.built = True

    def call(self, states, padding_mask):
        if 0 in states.shape[:2]:  # which Keras does not take
            return tf.zeros([*keras.ops.shape(states)[:2], self.width], states.dtype)
        if states.shape[1] is None:  # in a graph it may be 0
            length = tf.shape(states)[1]
            added = [[0, 0], [0, tf.maximum(1 - length, 0)], [0, 0]]
            states, padding_mask = tf.pad(states, added), tf.pad(padding_mask, added[:2])
            return self._outputs(states, padding_mask)[:, :length]
        return self._outputs(states, padding_mask)

    def _outputs(self, states, padding_mask):
        for forward, backward in itertools.zip_longest(self.forward, self.backward):
            outputs = [forward(states, mask=padding_mask)]
            if backward is not None:
                outputs.append(_reversed(backward(_reversed(states), mask=_reversed(padding_mask))))
            states = tf.concat(outputs, axis=-1)  # -> [B, T, W]
        return tf.where(padding_mask[:, :, tf.newaxis], states, tf.zeros([], states.dtype))

    def final_states(self, states: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
        """Returns the output of each direction after all tokens, `[B, W]`, from what `call` gave.

        It is that of the last token, and in the other direction that of the first.
        """
        last = tf.gather(states, last_columns(padding_mask), batch_dims=1)  # -> [B, W]
        if not self.bidirectional:
            return last
        first, units = first_token(states, padding_mask), self.units[-1]
        return tf.concat([last[:, :units], first[:, units:]], axis=-1)

    def compute_output_shape(self, states_shape, padding_mask_shape=None):
        return (*states_shape[:-1], self.width)


def unit_list(units: int | Sequence[int]) -> list[int]:
    """Returns the units of each layer. Raises `UserError` if they are not positive integers."""
    found = [units] if is_integer(units) else units
    is_list = isinstance(found, Sequence) and not isinstance(found, str) and len(found)
    is_valid = is_list and all(is_integer(number) and number > 0 for number in found)
    require(is_valid, "must be a positive integer or a list of them", UserError, units=units)
    return [*found]


def _orthogonal(shape, dtype=None):
    """Returns Keras's initial recurrent kernel; TensorFlow cannot compute it in bfloat16."""
    return tf.cast(keras.initializers.Orthogonal()(shape, "float32"), dtype)


def _reversed(values):
    """Returns `[B, T, ...]` with the order of the tokens reversed."""
    return tf.reverse(values, [1])
