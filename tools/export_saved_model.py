r"""Exports a trained model as a SavedModel that takes raw strings.

    python tools/export_saved_model.py --model_dir=out/model --export_dir=serving/reviews

writes serving/reviews/1 (the next time 2), with the signatures `serving_default` (strings),
`tokens` (ids) and
`examples` (serialised tf.train.Example), and prints what goes in and comes out. docs/serving.md
says how TensorFlow Serving and other programs load it.

    python tools/export_saved_model.py --model_dir=out/model --export_dir=serving/reviews \
        --quantize=int8 --noportable

writes a model of a quarter of the size that computes in 8-bit integers, fast with the fused
operations of bert_tf (--noportable); with stock operations (--portable) it is as small and slower
than float32.
"""

from absl import flags
from common.model_flags import FLAGS, calibration_texts, kind_of_model

from bert_tf import tool
from bert_tf.errors import UserError

flags.DEFINE_string("export_dir", None, "Where to write; TF Serving's model base path.")
flags.DEFINE_integer(
    "version",
    None,
    "Name of the subdirectory; one that is there is replaced. Default: one more than the newest.",
    lower_bound=1,
)
flags.DEFINE_enum("quantize", None, ["int8"], "8-bit integers instead of float32: smaller, faster.")
flags.DEFINE_bool(
    "portable", True, "Only stock operations, so that a stock TF Serving loads the model."
)
flags.DEFINE_bool(
    "freeze",
    False,
    "With --noportable: packs the kernels of the dense layers, for the fastest answers.",
)
flags.DEFINE_bool("pairs", False, "Whether a classifier takes two texts, `text` and `pair`.")


def main():
    if FLAGS.freeze and FLAGS.portable:
        raise UserError("--freeze is for --noportable: packed kernels need the fused operations.")
    if FLAGS.calibration_file and not FLAGS.quantize:
        raise UserError("--calibration_file is for --quantize=int8.")
    texts = calibration_texts()
    tool.require_writable(FLAGS.export_dir, "export_dir")

    from bert_tf.serving import export
    from bert_tf.serving.description import as_text, read_description

    model = kind_of_model().from_pretrained(FLAGS.model_dir)
    if texts is not None and model.backbone.quantization is not None:
        raise UserError(
            "--calibration_file is for a model in floating point. Received: --model_dir="
            f"{FLAGS.model_dir}, quantized to {model.backbone.quantization} already"
        )
    if FLAGS.quantize and model.backbone.quantization is None:
        model.quantize(FLAGS.quantize, calibration=texts)
    if FLAGS.freeze:
        model.freeze_for_inference()
    path = export(model, FLAGS.export_dir, FLAGS.version, FLAGS.portable, FLAGS.pairs)
    print(f"{path}\n{as_text(read_description(path))}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir", "export_dir"])
    tool.run(main)
