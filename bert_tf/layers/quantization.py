"""What `quantize` takes, as Keras's layers and models have it."""

from bert_tf.errors import UserError

INT8 = "int8"


def require_int8(mode, config=None) -> None:
    """Raises `UserError` for another mode than "int8", or another configuration than its own.

    Args:
        mode: As in `keras.Model.quantize`.
        config: None or Keras's `QuantizationConfig`, which Keras makes of the mode.
    """
    is_own = config is None or _quantizers(config) == _quantizers(type(config)())
    if mode != INT8 or not is_own:
        raise UserError(
            "`quantize` takes mode 'int8': kernels symmetric, a scale a column; activations "
            "asymmetric, a scale a row. Received: "
            f"mode={mode!r}, config={None if config is None else config.get_config()}"
        )


def _quantizers(config):
    """What the configuration asks for, without the ids that Keras adds while it loads a file."""
    quantizers = (config.weight_quantizer, config.activation_quantizer)
    return [quantizer and (type(quantizer), quantizer.get_config()) for quantizer in quantizers]
