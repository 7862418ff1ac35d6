r"""Creates masked pre-training examples with Apache Beam, for corpora larger than a machine.

The examples are those of create_pretraining_data.py, whose flags it has: the same text, flags and
seed give the same files, byte for byte, whatever the number of workers is.

    pip install 'bert-tf[beam]'
    bert-tf beam_create_pretraining_data --input_file=wiki/ --input_format=wiki \
      --output_file=train-0.tfrecord,train-1.tfrecord --vocab_file=vocab.txt

--input_file may be files of any size, glob patterns, directories (with all their folders) or remote
paths (gs://, s3://, hdfs://) of Beam's file systems. A line that is not UTF-8 or, with
--input_format=json, not an object with a text ends the run, or with --dead_letter_file it is left
out and reported there.

The work is kept in a hidden directory next to the output: if a worker is killed, only what it had
not finished is done again, and if the whole run is interrupted, the same command continues it.
"""

import dataclasses

from bert_tf.tools.common import beam_flags, beam_run, pretraining_data_flags, tool
from bert_tf.tools.common.checkpoint_flags import new_tokenizer
from bert_tf.tools.common.flag_table import FLAGS


def main():
    options = beam_flags.pipeline_options()
    files = beam_run.find_input()
    inputs = [file.path for file in files]
    pretraining_data_flags.check_outputs(FLAGS.output_file, inputs)
    beam_run.check_places(inputs, FLAGS.output_file)

    from bert_tf.beam import pretraining_data
    from bert_tf.beam.example_steps import ExampleSettings
    from bert_tf.beam.line_formats import LineFormat

    tokenizer = new_tokenizer(errors=FLAGS.encoding_errors)
    tokenizer.require_mask_token()
    settings = ExampleSettings(
        tokenizer.vocabulary,
        FLAGS.do_lower_case,
        pretraining_data_flags.example_options(),
        LineFormat(FLAGS.input_format, FLAGS.encoding_errors, FLAGS.json_key),
        FLAGS.dupe_factor,
        FLAGS.random_seed,
        FLAGS.chunk_megabytes << 20,
        len(FLAGS.output_file),
        segmenter=tokenizer.segmenter,
    )
    keep_going = FLAGS.dead_letter_file is not None
    description = [dataclasses.asdict(settings), files, keep_going]
    with beam_run.workspace(FLAGS.output_file, description) as workspace:
        corpus, letters = pretraining_data.scan_corpus(
            workspace, files, settings, options, keep_going, FLAGS.max_retries
        )
        pretraining_data_flags.warn_of_single_documents(corpus)
        outputs, summary = pretraining_data.write_examples(
            workspace, corpus, settings, options, FLAGS.max_retries
        )
        beam_run.write_dead_letters(letters)
        pretraining_data.copy_outputs(outputs, FLAGS.output_file)
    pretraining_data_flags.print_summary(corpus, summary)


if __name__ == "__main__":
    tool.run(main, "input_file", "output_file", "vocab_file")
