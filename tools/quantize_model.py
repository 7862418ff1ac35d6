r"""Quantizes a trained model to 8-bit integers: a quarter of the size, and faster on a CPU.

    bert-tf quantize_model --model_dir=out/model --output_dir=out/int8

Every tool and `from_pretrained` can open --output_dir. With --calibration_file, the layers that
gain accuracy by it are smoothed before they are quantized. The tool prints the size of the weights
before and after and, with --calibration_file, the number of smoothed layers and the error of every
layer on these texts: --skip keeps those that lose most in floating point. To see what quantization
costs in accuracy, run bert-tf compare_models on both directories, or the tool of the task, such as
bert-tf run_ner --do_predict.

    bert-tf quantize_model --model_dir=out/model --output_dir=out/int8 \
        --calibration_file=texts.txt --attention=int8 --skip=blocks.11.output_dense

--attention=int8 also computes attention in 8-bit integers: faster for texts of more than about 50
tokens, with an error of its own. --activations=static uses scales that --calibration_file gives
instead of finding them for every token: a little faster, and less accurate.
"""

from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import require_other_directory
from bert_tf.tools.common.console import print_model
from bert_tf.tools.common.flag_table import define_flags
from bert_tf.tools.common.model_comparison import weight_bytes
from bert_tf.tools.common.model_flags import (
    FLAGS,
    define_quantization,
    kind_of_model,
    quantization_arguments,
)

define_flags("""
    output_dir (str): The directory to write the quantized model to.
""")
define_quantization()


def main():
    require_other_directory(
        FLAGS.output_dir, "model_dir", "as the float weights cannot be restored"
    )
    arguments = quantization_arguments()
    tool.require_writable(FLAGS.output_dir, "output_dir")

    from bert_tf.layers import Quantization
    from bert_tf.layers.kernels import Int8Kernel

    model = kind_of_model().from_pretrained(FLAGS.model_dir)
    model.require_trained_heads("quantized")
    before = weight_bytes(model)
    # Mistakes in --skip are found before any work.
    encoder, texts = model.backbone.encoder, arguments["calibration"]
    Quantization(skip=FLAGS.skip).quantized(
        {**encoder.dense_layers(), **encoder.attention_layers()}
    )
    errors = {} if texts is None else model.quantization_errors(texts, FLAGS.activations)
    model.quantize("int8", **arguments)
    model.save_pretrained(FLAGS.output_dir, format="bert_tf")
    after = weight_bytes(model)
    print(
        f"{FLAGS.model_dir}: {before / 1e6:.1f} MB -> {FLAGS.output_dir}: {after / 1e6:.1f} MB "
        f"({after / before:.2f})"
    )
    if texts is not None:
        layers = encoder.dense_layers().values()
        forms = [dense.kernel_impl for dense in layers]
        smoothed = sum(isinstance(form, Int8Kernel) and form.is_smoothed() for form in forms)
        print(f"smoothed: {smoothed} of {len(layers)} layers")
        print("relative error of each layer in 8-bit integers:")
        for path, error in sorted(errors.items(), key=lambda item: -item[1]):
            print(f"  {error:.4f}  {path}")
    print_model(FLAGS.output_dir)


if __name__ == "__main__":
    tool.run(main, "model_dir", "output_dir")
