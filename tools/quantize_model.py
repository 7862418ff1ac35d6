"""Quantizes a trained model to 8-bit integers: a quarter of the size, and faster on a CPU.

    python tools/quantize_model.py --model_dir=out/model --output_dir=out/int8

Every tool and `from_pretrained` can open --output_dir. With --calibration_file, the layers that
gain accuracy by it are smoothed before they are quantized. The tool prints the size of the weights
before and after and, with --calibration_file, the number of smoothed layers. To see what
quantization costs in accuracy, run tools/compare_models.py on both directories, or the tool of the
task, such as tools/run_ner.py --do_predict.
"""

from absl import flags
from common.checks import require_other_directory
from common.model_comparison import weight_bytes
from common.model_flags import FLAGS, calibration_texts, define_calibration, kind_of_model

from bert_tf import tool

flags.DEFINE_string("output_dir", None, "The directory to write the quantized model to.")
define_calibration()


def main():
    require_other_directory(
        FLAGS.output_dir, "model_dir", "as the float weights cannot be restored"
    )
    texts = calibration_texts()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    model = kind_of_model().from_pretrained(FLAGS.model_dir)
    model.require_trained_heads("quantized")
    before = weight_bytes(model)
    model.quantize("int8", calibration=texts)
    model.save_pretrained(FLAGS.output_dir, format="bert_tf")
    after = weight_bytes(model)
    print(
        f"{FLAGS.model_dir}: {before / 1e6:.1f} MB -> {FLAGS.output_dir}: {after / 1e6:.1f} MB "
        f"({after / before:.2f})"
    )
    if texts is not None:
        layers = model.backbone.encoder.dense_layers().values()
        smoothed = sum(dense.kernel_form.is_smoothed() for dense in layers)
        print(f"smoothed: {smoothed} of {len(layers)} layers")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir", "output_dir"])
    tool.run(main)
