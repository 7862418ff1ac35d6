"""A tokenizer as a layer, for models of Keras's functional API that take strings."""

import keras
import tensorflow as tf

from bert_tf.base.keras_files import deserialized
from bert_tf.errors import require, user_error
from bert_tf.text.packing import check_row_options
from bert_tf.text.subword_tokenizer import SubwordTokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_base import Tokenizer

_INTEGERS = ("token_ids", "segment_ids")


@keras.saving.register_keras_serializable(package="bert_tf")
class TokenizerLayer(keras.layers.Layer):
    """Converts texts to what a `BertBackbone` takes, inside of a Keras model.

    The models of tasks take texts without it. It is for a model that is put together with
    `keras.Input` and `keras.Model`; the tokenizer is saved and exported with that model. Pass the
    texts as a tensor, a `tf.data.Dataset` or an array of objects: Keras refuses NumPy's `<U`. A
    program that opens the file of such a model imports this class and `BertBackbone` before.

    Args:
        tokenizer: A `BertTokenizer` or `SubwordTokenizer`.
        max_length: The length that rows are truncated to, at most the number of positions of the
            backbone. None for that of the tokenizer.
        padding: See `Tokenizer`; "max_length" gives all batches one shape.
        truncation: See `Tokenizer`.
        **kwargs: See `keras.layers.Layer`.

    Call arguments:
        inputs: Strings `[B]` or `[B, 1]`, or a list of two of them, for pairs.

    Returns:
        `token_ids` and `segment_ids`, int32 `[B, T]`, and `padding_mask`, bool `[B, T]`.

    Raises:
        ConfigError: If an argument has an invalid value.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> texts = keras.Input(shape=(), dtype="string")
        >>> tokens = bert_tf.text.TokenizerLayer(tokenizer, max_length=64)(texts)
        >>> outputs = keras.layers.Dense(1)(backbone(tokens)["pooled_output"])
        >>> model = keras.Model(texts, outputs)
        >>> model.predict(tf.constant(["a good film", "a bad film"]), verbose=0).shape
        (2, 1)
    """

    def __init__(
        self,
        tokenizer: BertTokenizer | SubwordTokenizer,
        max_length: int | None = None,
        padding: str | int = "longest",
        truncation: str = "longest_first",
        **kwargs,
    ):
        super().__init__(**kwargs)
        rule = "must be a BertTokenizer or a SubwordTokenizer"
        require(isinstance(tokenizer, Tokenizer), rule, tokenizer=tokenizer)
        check_row_options(max_length or tokenizer.max_length, padding, truncation)
        self.tokenizer, self.max_length = tokenizer, max_length
        self.padding, self.truncation = padding, truncation
        self.supports_jit = False  # XLA has no strings

    def call(self, inputs):
        columns = [_as_column(texts) for texts in _columns(inputs)]
        rows = {"max_length": self.max_length, "padding": self.padding}
        return self.tokenizer(*columns, truncation=self.truncation, **rows)

    def compute_output_spec(self, inputs):
        size = _columns(inputs)[0].shape[0]
        width = self.max_length or self.tokenizer.max_length
        shape = (size, width if self.padding == "max_length" else None)
        spec = {name: keras.KerasTensor(shape, "int32") for name in _INTEGERS}
        return {**spec, "padding_mask": keras.KerasTensor(shape, "bool")}

    def get_config(self):
        names = ("max_length", "padding", "truncation")
        tokenizer = keras.saving.serialize_keras_object(self.tokenizer)
        options = {name: getattr(self, name) for name in names}
        return {**super().get_config(), "tokenizer": tokenizer, **options}

    @classmethod
    def from_config(cls, config):
        tokenizer = deserialized(config["tokenizer"], Tokenizer, "tokenizer")
        return cls(**{**config, "tokenizer": tokenizer})


def _columns(inputs) -> list:
    columns = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
    if len(columns) not in (1, 2):
        received = f"{len(columns)} tensors"
        raise user_error("The inputs of a TokenizerLayer", "be texts, or two for pairs", received)
    return columns


def _as_column(texts: tf.Tensor) -> tf.Tensor:
    """`[B]` or `[B, 1]` -> `[B]`."""
    return texts[:, 0] if texts.shape.rank == 2 and texts.shape[1] == 1 else texts
