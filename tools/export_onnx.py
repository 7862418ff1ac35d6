"""Turns the SavedModel of tools/export_saved_model.py into an ONNX file, and checks it.

    python tools/export_onnx.py --saved_model=serving/reviews/1 --output_file=reviews.onnx

ONNX has no tokenizer of strings, so the file has the signature `tokens`: token_ids and segment_ids
int32, padding_mask bool, all [batch, length], both of any size; the outputs are the signature's.
The ids come from any tokenizer with the vocabulary in the SavedModel's assets.

Before the file is there, onnxruntime computes it beside TensorFlow, on batches of several sizes and
lengths with padding, and the outputs must agree to --tolerance. Needs tf2onnx and onnxruntime:
pip install 'bert-tf[onnx]'.
"""

import os

from absl import flags

from bert_tf import tool
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

OPSET = 18  # LayerNormalization is 17's, and what reads 18 is years old

flags.DEFINE_string("saved_model", None, "A version's directory, exported with --portable.")
flags.DEFINE_string("output_file", None, "The ONNX file.")
flags.DEFINE_float(
    "tolerance",
    1e-5,
    "The largest difference between onnxruntime and TensorFlow, as a share of the largest value "
    "but at least of 1.",
    lower_bound=0.0,
)


def require_portable(directory: str) -> dict:
    """The SavedModel's description.

    Raises:
        UserError: If there is none, or the model has fused operations.
    """
    from bert_tf.serving.description import read_description

    try:
        description = read_description(directory)
    except UserError as error:
        raise UserError(
            "--saved_model: a directory written by tools/export_saved_model.py was expected, such "
            f"as serving/reviews/1. Received: {directory} ({error})"
        ) from None
    if not description["portable"]:
        raise UserError(
            f"--saved_model: {directory} was exported with --noportable. ONNX has no such "
            "operations; export it with --portable."
        )
    return description


def convert(function):
    """The ONNX model of a concrete function whose arguments have names."""
    import tf2onnx
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    frozen = convert_variables_to_constants_v2(function, lower_control_flow=False)
    inputs = [tensor.name for tensor in frozen.inputs]
    outputs = [tensor.name for tensor in frozen.outputs]
    names = sorted(function.structured_outputs)  # the order of tf.nest
    model, _ = tf2onnx.convert.from_graph_def(
        frozen.graph.as_graph_def(),
        input_names=inputs,
        output_names=outputs,
        opset=OPSET,
        custom_op_handlers={"Erfc": (_erfc, [])},
        tensors_to_rename={
            **{tensor: tensor.split(":")[0].removeprefix("tokens_") for tensor in inputs},
            **dict(zip(outputs, names)),
        },
    )
    return model


def _erfc(context, node, name, arguments):
    """1 - erf(x), in the place of an operation that ONNX has not and tf2onnx does not know.

    Of GELU's negative tail that keeps the sum, not the digits: 1e-7 of what is added to it.
    """
    import numpy as np
    from tf2onnx.utils import make_name, map_onnx_to_numpy_type

    shapes, dtypes = node.output_shapes, node.output_dtypes
    one = context.make_const(make_name("one"), np.ones([], map_onnx_to_numpy_type(dtypes[0])))
    erf = context.make_node("Erf", [node.input[0]], shapes=shapes, dtypes=dtypes)
    inputs, outputs = [one.output[0], erf.output[0]], node.output
    context.remove_node(node.name)
    context.make_node("Sub", inputs, name=node.name, outputs=outputs, shapes=shapes, dtypes=dtypes)


def check_batches(vocabulary_size: int, max_length: int):
    """Token dictionaries of several sizes: ids at random, rows of different lengths."""
    import numpy as np

    source = np.random.default_rng(0)
    for rows, length in ((1, 8), (3, 17), (8, min(64, max_length))):
        lengths = source.integers(3, length + 1, rows)
        lengths[0] = length
        mask = np.arange(length) < lengths[:, np.newaxis]
        ids = source.integers(1, vocabulary_size, [rows, length])
        second = (np.arange(length) >= lengths[:, np.newaxis] // 2) & mask
        yield {
            "token_ids": np.where(mask, ids, 0).astype(np.int32),
            "segment_ids": second.astype(np.int32),
            "padding_mask": mask,
        }


def check(path: str, function, batches, tolerance: float) -> float:
    """The largest difference between onnxruntime and TensorFlow.

    Raises:
        UserError: If it is above the tolerance.
    """
    import numpy as np
    import onnxruntime
    import tensorflow as tf

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    worst = 0.0
    for batch in batches:
        expected = function(**{name: tf.constant(values) for name, values in batch.items()})
        for name, received in zip(names, session.run(names, batch)):
            reference = expected[name].numpy()
            if reference.dtype == object:
                if not np.array_equal(reference, np.char.encode(received.astype(str))):
                    raise UserError(f"onnxruntime and TensorFlow differ in {name!r}.")
                continue
            scale = max(1.0, float(np.abs(reference).max()))
            worst = max(worst, float(np.abs(received - reference).max()) / scale)
    if not worst <= tolerance:
        raise UserError(
            f"onnxruntime and TensorFlow differ by {worst:.2e}; at most {tolerance:.0e} was "
            "expected (--tolerance). No file was written."
        )
    return worst


def main():
    description = require_portable(FLAGS.saved_model)
    tool.require_writable(os.path.dirname(os.path.abspath(FLAGS.output_file)), "output_file")
    try:
        import onnxruntime  # noqa: F401
        import tf2onnx  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"tf2onnx and onnxruntime were expected. Received: {error}. "
            "Install them with: pip install 'bert-tf[onnx]'"
        ) from None
    import tensorflow as tf

    from bert_tf.text.wordpiece import import_tensorflow_text

    import_tensorflow_text()  # the other signatures of the file hold its operations
    loaded = tf.saved_model.load(FLAGS.saved_model)
    function = loaded.signatures["tokens"]
    with open(os.path.join(FLAGS.saved_model, "assets", "vocab.txt"), encoding="utf-8") as file:
        vocabulary_size = sum(1 for _ in file)
    with atomic_path(FLAGS.output_file) as new:
        with open(new, "wb") as file:
            file.write(convert(function).SerializeToString())
        batches = check_batches(vocabulary_size, description["max_length"])
        worst = check(new, function, batches, FLAGS.tolerance)
        size = os.path.getsize(new)
    print(
        f"{FLAGS.output_file}: {size / 2**20:.1f} MiB; the largest difference from TensorFlow is "
        f"{worst:.1e}."
    )


if __name__ == "__main__":
    flags.mark_flags_as_required(["saved_model", "output_file"])
    tool.run(main)
