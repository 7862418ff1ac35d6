"""Which parts of a model are quantized, and a check of the arguments of Keras's `quantize`."""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

from bert_tf.base.json_schema import either, list_of, may_lack, object_of, one_of, text
from bert_tf.errors import UserError, require, user_error

INT8 = "int8"
FLOAT = "float"
BFLOAT16 = "bfloat16"
ATTENTIONS = (FLOAT, BFLOAT16, INT8)
DYNAMIC = "dynamic"
STATIC = "static"
ACTIVATION_MODES = (DYNAMIC, STATIC)

# What `Quantization.to_json` returns, or null.
QUANTIZATION = either(
    one_of(None, INT8),
    object_of(
        {
            "mode": one_of(INT8),
            "attention": one_of(*ATTENTIONS),
            "skip": list_of(text(), most=100_000),
            "activations": may_lack(one_of(*ACTIVATION_MODES)),
        },
        only=True,
    ),
)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """The parts of a model that compute in 8-bit integers.

    Args:
        mode: "int8": the dense layers of the encoder and the word embeddings.
        attention: "int8" also computes the attention of packed tokens in 8-bit integers
            (`bert_tf.ops.quantized_attention`), "bfloat16" multiplies in bfloat16; "float" does
            neither.
        skip: The layers that stay in floating point, by their paths or the beginnings of paths:
            "blocks.11" is the last block of BERT-base, "blocks.0.output_dense" a dense layer of the
            first, and "blocks.0.attention_scores" its attention, if `attention` is not "float".
        activations: How the inputs of the dense layers become integers. "dynamic": with a scale and
            a zero point for each row, computed when the model runs. "static": with one scale and
            zero point for each layer, from calibration, which is faster and less accurate.

    Raises:
        UserError: If `mode`, `attention` or `activations` is something else, or `skip` is not a
            sequence of strings.

    Example:
        >>> bert_tf.layers.Quantization(attention="int8", skip=["blocks.11"])
        Quantization(mode='int8', attention='int8', skip=('blocks.11',), activations='dynamic')
    """

    mode: str = INT8
    attention: str = FLOAT
    skip: tuple[str, ...] = ()
    activations: str = DYNAMIC

    def __post_init__(self):
        require_int8(self.mode)
        for name, known in (("attention", ATTENTIONS), ("activations", ACTIVATION_MODES)):
            if (value := getattr(self, name)) not in known:
                raise UserError(f"`{name}` must be one of {known}. Received: {name}={value!r}")
        is_list = isinstance(self.skip, Iterable) and not isinstance(self.skip, str)
        skip = tuple(self.skip) if is_list else self.skip
        rule = "must be a sequence of the paths of layers"
        is_valid = is_list and all(isinstance(path, str) for path in skip)
        require(is_valid, rule, UserError, skip=self.skip)
        object.__setattr__(self, "skip", skip)

    @classmethod
    def of(cls, value: Any) -> "Quantization | None":
        """Makes one from the value in a constructor or a file: None, "int8" or a dictionary.

        Raises:
            UserError: If it is something else.
        """
        if value is None or isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            return cls(mode=value)
        unknown = set(value) - {field.name for field in dataclasses.fields(cls)}
        if unknown:
            expected = "have the keys mode, attention, skip and activations only"
            received = f"also {', '.join(sorted(map(str, unknown)))}"
            raise user_error("`quantization`", expected, received)
        return cls(**value)

    def to_json(self) -> str | dict:
        """Returns what `of` takes: the mode alone if the other arguments are the defaults."""
        if self == Quantization(self.mode):
            return self.mode
        values = {"mode": self.mode, "attention": self.attention, "skip": list(self.skip)}
        return values if self.activations == DYNAMIC else {**values, "activations": STATIC}

    def quantized(self, paths: Iterable[str]) -> list[str]:
        """Returns the paths of layers that `skip` does not name.

        Raises:
            UserError: If an entry of `skip` names none of the layers.
        """
        paths = list(paths)
        for beginning in self.skip:
            if not any(_begins(path, beginning) for path in paths):
                expected = f"name layers of the encoder, such as 'blocks.0' or {paths[0]!r}"
                raise user_error("`skip`", expected, f"skip has {beginning!r}")
        return [path for path in paths if not any(_begins(path, part) for part in self.skip)]

    def of_blocks(self, count: int) -> "Quantization":
        """Returns the quantization of a model that has only the first `count` blocks."""
        later = re.compile(r"blocks\.(\d+)(\.|$)")
        numbers = {path: later.match(path) for path in self.skip}
        kept = [path for path, found in numbers.items() if not found or int(found[1]) < count]
        return dataclasses.replace(self, skip=kept)


def _begins(path, beginning):
    return f"{path}.".startswith(f"{beginning}.")


def require_int8(mode, config=None) -> None:
    """Checks that the mode is "int8", and the configuration Keras's default for it, or None.

    Raises:
        UserError: If the mode or the configuration is something else.
    """
    is_own = config is None or _quantizers(config) == _quantizers(type(config)())
    if mode != INT8 or not is_own:
        raise UserError(
            "`mode` must be 'int8' and `config` the default of that mode: kernels are quantized "
            "with one scale per column, activations with one scale per row. Received: "
            f"mode={mode!r}, config={None if config is None else config.get_config()}"
        )


def _quantizers(config):
    """Returns the quantizers without the ids that Keras adds when it loads a file."""
    quantizers = (config.weight_quantizer, config.activation_quantizer)
    return [quantizer and (type(quantizer), quantizer.get_config()) for quantizer in quantizers]
