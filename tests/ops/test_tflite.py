"""What TFLite's converter makes of the ops inside `tflite_compatible`."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops


def test_tflite_converts_what_it_is_given_as_compatible():
    if not hasattr(tf, "lite"):
        pytest.skip("needs a TensorFlow with TFLite's converter")
    before = ops.active_backend()
    bias = tf.constant([0.5, -1.0, 0.0, 2.0])
    with ops.tflite_compatible():
        assert ops.active_backend() == "reference"
        function = tf.function(lambda x: ops.fused_bias_gelu(x, bias))
        concrete = function.get_concrete_function(tf.TensorSpec([3, 4]))
    assert ops.active_backend() == before
    converted = tf.lite.TFLiteConverter.from_concrete_functions([concrete]).convert()
    interpreter = tf.lite.Interpreter(model_content=converted)
    interpreter.allocate_tensors()
    x = tf.constant(np.linspace(-8, 8, 12, dtype=np.float32).reshape(3, 4))
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], x)
    interpreter.invoke()
    y = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    np.testing.assert_allclose(y, ops.fused_bias_gelu_reference(x, bias), atol=2e-6)
