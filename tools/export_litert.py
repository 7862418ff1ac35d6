r"""Exports a trained model as a LiteRT (TensorFlow Lite) file, for phones and small machines.

    bert-tf export_litert --input=out/model --output=litert/reviews.tflite \
      --max_seq_length=32,128 --quantize=int8 --verify

The input is any checkpoint that bert-tf convert_checkpoint reads. The file has a signature for each
length, tokens_32 and tokens_128 here, whose inputs are token_ids, segment_ids (int32) and
padding_mask (bool), [batch_size, length]; they share the weights. All operations are builtin, so no
runtime needs "Select TF" operations.

The tool also writes tokenizer.json and, for a model with classes, labels.txt next to the file.
Hugging Face's tokenizers makes the ids from tokenizer.json, also in Rust, Swift and JavaScript.
--verify needs ai-edge-litert: pip install 'bert-tf[litert]'.
"""

import os

from bert_tf.base.optional_packages import require_package
from bert_tf.tools.common import tool
from bert_tf.tools.common.checkpoint_flags import exported_specs
from bert_tf.tools.common.checks import positive_integers
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags(f"""
    input (str): The checkpoint to read: a directory, a file, a prefix or a Hub name (org/name).
    output (str): The file to write.
    max_seq_length (list, 128): The lengths of the sequences, such as 128 or 32,128.
    batch_size (int >= 1, 1): The number of sequences that the model takes at a time.
    quantize (none|float16|int8, none): The type of the weights. With int8, matmuls also round their
        inputs to 8 bits when the file runs.
    model (auto|{"|".join(exported_specs())}, auto): The task of the model. `auto` reads it from the
        checkpoint.
    verify (bool, false): Whether to run the file with ai-edge-litert on random tokens and print the
        largest difference from the model. For float32 it must be at most 1e-5 of the largest
        number.
""")


def main():
    tool.require_output_file(FLAGS.output, "output")
    lengths = positive_integers("max_seq_length")
    if FLAGS.verify:
        require_package("ai_edge_litert", "--verify")
    from bert_tf.checkpoints.conversion import servable_class
    from bert_tf.serving import export_litert

    if FLAGS.model == "auto":
        model_class = servable_class(FLAGS.input)
    else:
        model_class = exported_specs()[FLAGS.model].model_class()
    model = model_class.from_pretrained(FLAGS.input)
    difference = export_litert(
        model, FLAGS.output, lengths, FLAGS.batch_size, FLAGS.quantize, FLAGS.verify
    )
    size = os.path.getsize(FLAGS.output)
    print(
        f"{FLAGS.output}: {size / 2**20:.1f} MiB, with {', '.join(f'tokens_{n}' for n in lengths)}"
    )
    if FLAGS.verify:
        print(f"largest difference between the file and the model: {difference:.1e}")


if __name__ == "__main__":
    tool.run(main, "input", "output")
