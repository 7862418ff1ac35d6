"""Learns a vocabulary with Apache Beam, from corpora larger than a machine.

The vocabulary is exactly that of build_vocab.py, whose flags it has:

    pip install 'bert-tf[beam]'
    bert-tf beam_build_vocab --input_file=wiki/ --input_format=wiki --vocab_size=30522 \\
      --output_file=vocab.txt

The workers count the words of blocks of the files; the distinct words with their counts must fit
into the memory of this process, which learns the vocabulary. --input_file, --dead_letter_file and
interrupted runs are as in beam_create_pretraining_data.py.
"""

from bert_tf.errors import DataError, UserError
from bert_tf.tools.common import beam_flags, beam_run, tool, vocabulary_flags
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS


def main():
    if vocabulary_flags.is_unigram():
        rule = (
            "must be wordpiece or bpe, which learn from counts; build_vocab learns Unigram models"
        )
        raise flag_error("algorithm", rule)
    options = beam_flags.pipeline_options()
    files = beam_run.find_input()
    inputs = [file.path for file in files]
    beam_run.check_places(inputs, [FLAGS.output_file])
    beam_run.require_local("output_file")
    tool.require_output_file(FLAGS.output_file, "output_file", inputs)

    from bert_tf.beam.line_formats import LineFormat
    from bert_tf.beam.vocabulary import count_corpus

    line_format = LineFormat(FLAGS.input_format, json_key=FLAGS.json_key)
    normalization = vocabulary_flags.normalization()
    keep_going = FLAGS.dead_letter_file is not None
    description = [FLAGS.input_format, FLAGS.json_key, normalization, files, keep_going]
    with beam_run.workspace([FLAGS.output_file], description) as workspace:
        work = (options, keep_going, FLAGS.max_retries)
        counts, letters = count_corpus(workspace, files, line_format, normalization, *work)
        try:
            vocabulary_flags.learn_and_write(
                counts, "beam_create_pretraining_data", **beam_run.format_flags()
            )
        except DataError as error:
            if not counts:
                raise
            raise UserError(error) from None  # another --vocab_size may do: the counts are kept
        beam_run.write_dead_letters(letters)


if __name__ == "__main__":
    tool.run(main, "input_file", "output_file")
