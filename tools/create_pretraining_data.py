r"""Creates masked pre-training examples (MLM and next sentence) from text files.

The flags, defaults and TFRecord features are those of google-research/bert's
create_pretraining_data.py:

    bert-tf create_pretraining_data --input_file='text/*.txt' \
      --output_file=train-0.tfrecord,train-1.tfrecord --vocab_file=vocab.txt

The input is UTF-8 text with one sentence per line and a blank line between documents; the end of a
file also ends its document. The text may be larger than memory: the tool processes it in chunks of
documents of --chunk_megabytes, and the random second segment of a pair comes from the same chunk.
All examples are shuffled uniformly over all chunks and written to the output files in turn. Until
the end this needs as much disk space again as the output, in the directory of the first output
file. The same flags give the same bytes, whatever --num_processes is.

A corpus (or chunk) with a single document has no other document for a random next segment. All its
pairs are then consecutive segments (IsNext), and the tool prints a warning. Output files are
written atomically at the end.
"""

import os
import signal
import sys

from bert_tf.tools.common import pretraining_data_flags, tool
from bert_tf.tools.common.checkpoint_flags import new_tokenizer
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.text_files import find_files

define_flags("""
    num_processes (int >= 1): Number of processes that create examples. Default: one per CPU.
""")


def main():
    # The exception of sys.exit removes unfinished files as it passes, like that of Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM; nothing was written"))
    inputs = find_files(FLAGS.input_file)
    pretraining_data_flags.check_outputs(FLAGS.output_file, inputs)

    from bert_tf.tasks.pretraining.create_data import create_pretraining_data
    from bert_tf.tasks.pretraining.document_chunks import scan_documents

    options = pretraining_data_flags.example_options()
    tokenizer = new_tokenizer(errors=FLAGS.encoding_errors)
    corpus = scan_documents(inputs, FLAGS.chunk_megabytes << 20, FLAGS.encoding_errors)
    pretraining_data_flags.warn_of_single_documents(corpus)
    work = options_of("dupe_factor", "random_seed", "encoding_errors")
    work["num_processes"] = FLAGS.num_processes or os.cpu_count()
    summary = create_pretraining_data(corpus, FLAGS.output_file, tokenizer, options, **work)
    pretraining_data_flags.print_summary(corpus, summary)


if __name__ == "__main__":
    tool.run(main, "input_file", "output_file", "vocab_file")
