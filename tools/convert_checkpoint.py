r"""Converts a BERT checkpoint from any format that bert_tf reads to one that it writes.

    bert-tf convert_checkpoint --input=uncased_L-12_H-768_A-12 --output=bert-base \
      --format=huggingface --verify

The input can be a TF1 checkpoint, a Hugging Face directory (safetensors, pytorch_model.bin or
tf_model.h5), a keras-hub preset, a TF2 checkpoint of tensorflow/models, a .keras or .weights.h5
file, a bert_tf directory, or a name on the Hugging Face Hub. The tool detects the format. It prints
each tensor of the input, its shape and its name in the output.

    bert-tf convert_checkpoint --input=reviews --output=serving/reviews --format=saved_model

This writes a SavedModel that takes raw strings to serving/reviews/1 (the next time to 2) and prints
its inputs and outputs. The checkpoint's class or its head says what the model is for.
"""

import dataclasses

from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.checkpoint_flags import exported_specs, load_tokenizer
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags

SAVED_MODEL = "saved_model"

define_flags(f"""
    input (str): The checkpoint to read: a directory, a file, a prefix or a Hub name (org/name).
    output (str): The directory to write. For a SavedModel, the directory of its versions: the model
        base path of TF Serving.
    format (huggingface|tf1|bert_tf|{SAVED_MODEL}, huggingface): The format to write.
    config_file (str): The config file. Default: the one next to the weights.
    vocab_file (str): The vocabulary file. Default: the one next to the weights.
    do_lower_case (bool): Whether the model's text is converted to lower case. Default: as the
        tokenizer's files say.
    model (auto|{"|".join(exported_specs())}, auto): For a SavedModel: its task. `auto` reads it
        from the checkpoint; a checkpoint of pre-training is exported for masked words.
    pairs (bool, false): For the SavedModel of a classifier: two inputs, `text` and `pair`, instead
        of one.
    verify (bool, false): Whether to open the output, run both models on the same input and print
        the largest difference. It must be 0, for a SavedModel at most 1e-5 of the largest number.
""")


def print_table(conversion):
    """Prints each tensor of the input, its shape and its name in the output."""
    rows = [
        (name, "x".join(map(str, shape)) or "scalar", target or "(left out)")
        for name, shape, target in conversion.rows
    ]
    rows.insert(0, ("tensor of the input", "shape", "name in the output"))
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, shape, target in rows:
        print(f"{name:{widths[0]}}  {shape:>{widths[1]}}  {target}")


def verify(conversion):
    """Opens the output and compares it with the model that was written."""
    from bert_tf.adapt.layer_dropping import clone_with_config
    from bert_tf.checkpoints.conversion import largest_difference

    model = conversion.model
    difference = largest_difference(model, type(model).from_pretrained(FLAGS.output))
    print(f"largest difference between input and output: {difference:g}")
    if FLAGS.format == "tf1" and conversion.config.hidden_act == "gelu":
        original = clone_with_config(
            model, dataclasses.replace(conversion.config, hidden_act="gelu_new")
        )
        original.set_weights(model.get_weights())
        print(
            "google-research/bert itself, which ignores bert_tf_exact_gelu and computes the tanh "
            f"GELU, would differ by: {largest_difference(model, original):g}"
        )
    # Both models have the same float32 weights, so their outputs must be equal bit for bit.
    if not difference <= 0.0:
        raise UserError(f"The outputs of both models must differ by 0. Received: {difference:g}")


def write_saved_model():
    """Exports the checkpoint as `model.export` does."""
    from bert_tf.checkpoints.conversion import servable_class
    from bert_tf.serving import export
    from bert_tf.serving.description import as_text, read_description
    from bert_tf.tools.common.export_comparison import compare_with_export

    if FLAGS.model == "auto":
        model_class = servable_class(FLAGS.input, FLAGS.config_file)
    else:
        model_class = exported_specs()[FLAGS.model].model_class()
    tokenizer = load_tokenizer(FLAGS.input)
    options = {} if tokenizer is None else {"tokenizer": tokenizer}
    model = model_class.from_pretrained(FLAGS.input, config_file=FLAGS.config_file, **options)
    if model.tokenizer is None:
        expected = f"be given for a SavedModel of {FLAGS.input}, which has no vocabulary"
        raise user_error("--vocab_file", expected, "--vocab_file=None")
    path = export(model, FLAGS.output, pairs=FLAGS.pairs)
    print(as_text(read_description(path)))
    if FLAGS.verify:
        difference = compare_with_export(model, path, FLAGS.pairs)
        print(f"largest difference between input and output: {difference:g}")
    print_result("SavedModel", path, "Serve", "serve", model=FLAGS.output)


def main():
    if FLAGS.format == SAVED_MODEL:
        tool.require_writable(FLAGS.output, "output")
        write_saved_model()
        return
    for flag in ("model", "pairs"):
        if FLAGS[flag].value != FLAGS[flag].default:
            raise flag_error(flag, f"must be used with --format={SAVED_MODEL}", "format")
    tool.require_writable(FLAGS.output, "output")
    from bert_tf.checkpoints import convert

    conversion = convert(
        FLAGS.input, FLAGS.output, FLAGS.format, FLAGS.config_file, load_tokenizer(FLAGS.input)
    )
    print_table(conversion)
    name = type(conversion.model).__name__
    left_out = sum(not target for _, _, target in conversion.rows)
    print(
        f"{FLAGS.input} ({conversion.source_format}) -> {FLAGS.output} ({FLAGS.format}): {name}, "
        f"{len(conversion.rows) - left_out} tensors written, {left_out} left out"
    )
    if FLAGS.verify:
        verify(conversion)


if __name__ == "__main__":
    tool.run(main, "input", "output")
