r"""Exports a trained model as a SavedModel that accepts raw strings.

    bert-tf export_saved_model --model_dir=out/model --export_dir=serving/reviews

This writes serving/reviews/1 (the next export serving/reviews/2) and prints its inputs and outputs.
The SavedModel has the signatures `serving_default` (strings), `tokens` (token ids) and `examples`
(serialized tf.train.Example). docs/serving.md explains how TensorFlow Serving and other programs
load it.

    bert-tf export_saved_model --model_dir=out/model --export_dir=serving/reviews \
        --quantize=int8 --noportable

This writes a model of a quarter of the size that computes in 8-bit integers: fast with the fused
operations of bert_tf (--noportable), but slower than float32 with stock operations (--portable).
With --noportable, --precision=auto is the fastest without 8-bit integers.
"""

from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import define_flags
from bert_tf.tools.common.model_flags import (
    FLAGS,
    define_quantization,
    kind_of_model,
    quantization_arguments,
)

define_flags("""
    export_dir (str): The directory to write the versions of the model to: the model base path of TF
        Serving.
    version (int >= 1): The version, which names the subdirectory; an existing one is replaced.
        Default: one more than the newest.
    quantize (int8): Quantize the model to 8-bit integers. Default: floating point.
""")
define_quantization()
define_flags("""
    portable (bool, true): Whether to write only stock operations, so that a stock TF Serving can
        load the model.
    precision (auto|float32|bfloat16): With --noportable: prepack the kernels of the dense layers
        and multiply them in float32 or bfloat16. auto measures what is fastest on this machine,
        which may be no prepacking, the default.
    pairs (bool, false): Whether a classifier has two inputs, `text` and `pair`, instead of one.
""")

_HOW_TO_QUANTIZE = ("calibration_file", "attention", "skip", "activations")


def main():
    precision = FLAGS.precision
    if precision and FLAGS.portable:
        expected = "be false with --precision: prepacked kernels need the fused operations"
        raise user_error("--portable", expected, "--portable=True. Add --noportable.")
    if FLAGS.quantize and precision not in (None, "float32"):
        expected = "be float32 with --quantize: that is the precision of layers that --skip names"
        raise user_error("--precision", expected, f"--precision={precision}")
    given = [name for name in _HOW_TO_QUANTIZE if FLAGS[name].value != FLAGS[name].default]
    if given and not FLAGS.quantize:
        raise flag_error(given[0], "must be used with --quantize=int8", "quantize")
    arguments = quantization_arguments()
    tool.require_writable(FLAGS.export_dir, "export_dir")

    from bert_tf.serving import export
    from bert_tf.serving.description import as_text, read_description

    model = kind_of_model().from_pretrained(FLAGS.model_dir)
    if given and model.backbone.quantization is not None:
        raise UserError(
            f"--{given[0]} must be used with a floating-point model. Received: --model_dir="
            f"{FLAGS.model_dir}, which is already quantized to {model.backbone.quantization}"
        )
    if FLAGS.quantize and model.backbone.quantization is None:
        model.quantize(FLAGS.quantize, **arguments)
    if precision and model.backbone.quantization is None:
        model.optimize_for_inference(precision)
    elif precision:
        model.prepack_for_inference()
    path = export(model, FLAGS.export_dir, FLAGS.version, FLAGS.portable, FLAGS.pairs)
    print(as_text(read_description(path)))
    print_result("SavedModel", path, "Serve", "serve", model=FLAGS.export_dir)


if __name__ == "__main__":
    tool.run(main, "model_dir", "export_dir")
