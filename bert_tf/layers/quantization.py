"""A check of the arguments of `quantize`, which are those of Keras's layers and models."""

from bert_tf.errors import UserError

INT8 = "int8"


def require_int8(mode, config=None) -> None:
    """Checks that the mode is "int8" and that the configuration is the default of that mode.

    Args:
        mode: As in `keras.Model.quantize`.
        config: None or the `QuantizationConfig` that Keras makes for `mode`.

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
