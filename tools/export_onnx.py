"""Converts a SavedModel of bert-tf export_saved_model to an ONNX file, and checks it.

    bert-tf export_onnx --saved_model=serving/reviews/1 --output_file=reviews.onnx

ONNX has no string tokenizer, so the file has the inputs of the signature `tokens`: token_ids and
segment_ids (int32) and padding_mask (bool), all [batch, length], with any batch size and length.
The outputs are those of the signature. The tool also writes tokenizer.json, from which Hugging
Face's tokenizers makes the ids, and for a model with classes labels.txt next to the file.

Before the file is written, the tool runs it with onnxruntime on batches of several sizes with
padding; the outputs must agree with those of TensorFlow within --tolerance. Needs tf2onnx and
onnxruntime: pip install 'bert-tf[onnx]'.
"""

import os

import numpy as np

from bert_tf.base.files import staged_files
from bert_tf.base.json_files import read_json
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.flag_table import FLAGS, define_flags

OPSET = 18  # LayerNormalization needs 17; runtimes have supported 18 for years
# Larger constants are weights. tf2onnx would keep tens of copies of them.
_MOST_BYTES_OF_CONSTANTS = 1000

define_flags("""
    saved_model (str): The directory of a version of the SavedModel, exported with --portable.
    output_file (str): The ONNX file to write.
    tolerance (float >= 0, 1e-5): Maximum difference between the outputs of onnxruntime and
        TensorFlow, relative to the larger of 1 and the largest value of an output.
""")


def require_portable(directory: str) -> dict:
    from bert_tf.serving.description import read_description

    try:
        description = read_description(directory)
    except UserError as error:
        expected = "be a directory written by bert-tf export_saved_model, such as serving/reviews/1"
        received = f"--saved_model={directory} ({error})"
        raise user_error("--saved_model", expected, received) from None
    if not description["portable"]:
        expected = "be exported with --portable, as ONNX has no fused operations"
        received = f"--saved_model={directory}, exported with --noportable"
        raise user_error("--saved_model", expected, received)
    return description


def convert(function):
    import tf2onnx

    from bert_tf.base import keras_compat

    constant = keras_compat.constant_function(function)
    inputs = [tensor.name for tensor in constant.inputs]
    outputs = [tensor.name for tensor in constant.outputs]
    names = sorted(function.structured_outputs)  # the order of tf.nest
    graph = constant.graph.as_graph_def()
    del constant
    weights = take_weights(graph)
    model, _ = tf2onnx.convert.from_graph_def(
        graph,
        input_names=[*inputs, *weights],
        output_names=outputs,
        opset=OPSET,
        custom_op_handlers={"Erfc": (_erfc, [])},
        tensors_to_rename={
            **{tensor: tensor.split(":")[0].removeprefix("tokens_") for tensor in inputs},
            **dict(zip(outputs, names)),
        },
    )
    put_weights(model.graph, weights)
    return model


def take_weights(graph) -> dict:
    """Replaces the weights in a GraphDef by inputs, and returns them by the names of the inputs."""
    import tensorflow as tf

    weights = {}
    for node in graph.node:
        if node.op != "Const":
            continue
        value = node.attr["value"].tensor
        if len(value.tensor_content) > _MOST_BYTES_OF_CONSTANTS:
            weights[f"{node.name}:0"] = tf.make_ndarray(value)
            node.op = "Placeholder"
            node.attr["shape"].shape.CopyFrom(value.tensor_shape)
            del node.attr["value"]
    return weights


def put_weights(graph, weights) -> None:
    """Replaces the inputs of an ONNX graph that are weights by initializers."""
    from onnx.numpy_helper import from_array

    used = {name for node in graph.node for name in node.input}
    inputs = [entry for entry in graph.input if entry.name not in weights]
    del graph.input[:]
    graph.input.extend(inputs)
    for name, values in weights.items():
        if name in used:
            graph.initializer.append(from_array(values, name))


def _erfc(context, node, name, arguments):
    """Replaces Erfc, which neither ONNX nor tf2onnx has, by 1 - erf(x).

    In GELU's negative tail this loses the relative precision, but the absolute error is only about
    1e-7.
    """
    from tf2onnx.utils import make_name, map_onnx_to_numpy_type

    shapes, dtypes = node.output_shapes, node.output_dtypes
    one = context.make_const(make_name("one"), np.ones([], map_onnx_to_numpy_type(dtypes[0])))
    erf = context.make_node("Erf", [node.input[0]], shapes=shapes, dtypes=dtypes)
    inputs, outputs = [one.output[0], erf.output[0]], node.output
    context.remove_node(node.name)
    context.make_node("Sub", inputs, name=node.name, outputs=outputs, shapes=shapes, dtypes=dtypes)


def check_batches(vocabulary_size: int, segments: int, max_length: int):
    """Yields token dictionaries of several sizes, with random ids and rows of different lengths."""
    source = np.random.default_rng(0)
    for rows, length in ((1, 8), (3, 17), (8, min(64, max_length))):
        lengths = source.integers(3, length + 1, rows)
        lengths[0] = length
        mask = np.arange(length) < lengths[:, np.newaxis]
        ids = source.integers(1, vocabulary_size, [rows, length])
        second = (np.arange(length) >= lengths[:, np.newaxis] // 2) & mask
        yield {
            "token_ids": np.where(mask, ids, 0).astype(np.int32),
            "segment_ids": np.minimum(second, segments - 1, dtype=np.int32),
            "padding_mask": mask,
        }


def check(path: str, function, batches, tolerance: float) -> float:
    """Returns the largest relative difference of the file's outputs from those of `function`."""
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
                    expected = "be that of TensorFlow"
                    received = "other strings"
                    raise user_error(f"The output {name!r} of onnxruntime", expected, received)
                continue
            scale = max(1.0, float(np.abs(reference).max()))
            # Unlike max, np.maximum keeps NaN.
            worst = float(np.maximum(worst, np.abs(received - reference).max() / scale))
    if not worst <= tolerance:
        expected = f"differ by at most --tolerance={tolerance:.0e}"
        received = f"{worst:.2e}. No file was written."
        raise user_error("onnxruntime and TensorFlow", expected, received)
    return worst


def main():
    description = require_portable(FLAGS.saved_model)
    tool.require_output_file(FLAGS.output_file, "output_file")
    for module in ("tf2onnx", "onnxruntime"):
        require_package(module, "this program")
    import tensorflow as tf

    from bert_tf.serving.litert import write_tokenizer_and_labels
    from bert_tf.text import load_tokenizer
    from bert_tf.text.tensorflow_text import explained_import

    with explained_import():  # the other signatures of the SavedModel have its operations
        import tensorflow_text  # noqa: F401
    loaded = tf.saved_model.load(FLAGS.saved_model)
    function = loaded.signatures["tokens"]
    config = read_json(os.path.join(FLAGS.saved_model, "assets", "config.json"))
    directory, name = os.path.split(os.path.abspath(FLAGS.output_file))
    with staged_files(directory) as files:
        tokenizer = load_tokenizer(os.path.join(FLAGS.saved_model, "assets"))
        write_tokenizer_and_labels(tokenizer, description.get("labels"), files, directory)
        new = os.path.join(files, name)
        with open(new, "wb") as file:
            file.write(convert(function).SerializeToString())
        # Networks without segments have no `type_vocab_size`.
        segments = config.get("type_vocab_size", 1)
        batches = check_batches(config["vocab_size"], segments, description["max_length"])
        worst = check(new, function, batches, FLAGS.tolerance)
        size = os.path.getsize(new)
    print(
        f"{FLAGS.output_file}: {size / 2**20:.1f} MiB; the largest difference from TensorFlow is "
        f"{worst:.1e}."
    )


if __name__ == "__main__":
    tool.run(main, "saved_model", "output_file")
