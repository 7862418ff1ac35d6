"""Errors for gradients that the native ops do not have.

A gradient of a gradient needs the gradient of a gradient op. So does forward-mode differentiation
(`tf.autodiff.ForwardAccumulator`), which TensorFlow computes with two backward passes. The native
gradient ops have no gradients. The reference implementations consist of stock TensorFlow ops and
have all gradients.
"""

import tensorflow as tf

_WAY_OUT = (
    "Call the model (or the op) inside `with bert_tf.ops.backend('reference'):`, or set "
    "BERT_TF_OPS=reference."
)


def refuse_second_order(op_type: str, function: str) -> None:
    """Registers a gradient of the gradient op of a public function that raises an error."""

    @tf.RegisterGradient(op_type)
    def _refuse(op: tf.Operation, *gradients: tf.Tensor) -> None:
        raise LookupError(
            f"`{function}` must be differentiated only once and in reverse mode: the native ops "
            "have no second derivatives and no forward-mode differentiation. "
            f"Received: the gradient of {op_type}. {_WAY_OUT}"
        )


def refuse_gradient(op_type: str, function: str, reason: str) -> None:
    """Registers a gradient of an op for inference that raises an error with the reason."""

    @tf.RegisterGradient(op_type)
    def _refuse(op: tf.Operation, *gradients: tf.Tensor) -> None:
        raise LookupError(
            f"`{function}` must be used for inference only. Received: the gradient of {op_type}. "
            f"{reason}"
        )
