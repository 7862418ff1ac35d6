"""What a gradient asks of an op that has none: an error that says what to do.

The gradient of a gradient asks a gradient op for its own gradient, and so does forward-mode
differentiation (`tf.autodiff.ForwardAccumulator`), which TensorFlow makes of two backward passes.
The native gradient ops have none; the reference implementations are stock TensorFlow ops and have
all of them.
"""

from __future__ import annotations

import tensorflow as tf

_WAY_OUT = (
    "Call the model (or the op) inside `with bert_tf.ops.backend('reference'):`, or set "
    "BERT_TF_OPS=reference."
)


def refuse_second_order(op_type: str, function: str) -> None:
    """Makes the gradient of a native gradient op an error.

    Args:
        op_type: The gradient op, such as "BertTf>FusedBiasGeluGrad".
        function: The public function whose gradient it is.
    """

    @tf.RegisterGradient(op_type)
    def _refuse(op: tf.Operation, *gradients: tf.Tensor) -> None:
        raise LookupError(
            f"`{function}` must be differentiated once and backwards on the native ops: they have "
            "no gradients of gradients and no forward-mode differentiation. "
            f"Received: the gradient of {op_type}. {_WAY_OUT}"
        )


def refuse_gradient(op_type: str, function: str, reason: str) -> None:
    """Makes the gradient of a native op for inference an error.

    Args:
        op_type: The op, such as "BertTf>FusedDense".
        function: Its public function.
        reason: Why it has no gradient and what to do, as sentences.
    """

    @tf.RegisterGradient(op_type)
    def _refuse(op: tf.Operation, *gradients: tf.Tensor) -> None:
        raise LookupError(
            f"`{function}` must be for inference only. Received: the gradient of {op_type}. "
            f"{reason}"
        )
