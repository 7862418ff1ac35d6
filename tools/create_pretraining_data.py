r"""Makes masked pre-training examples (MLM and next sentence) out of text files.

Flags, defaults, meaning and TFRecord features as google-research/bert's create_pretraining_data.py:

    python tools/create_pretraining_data.py --input_file='text/*.txt' \
      --output_file=train-0.tfrecord,train-1.tfrecord --vocab_file=vocab.txt

Input: UTF-8 text, one sentence a line, a blank line between documents; the end of a file ends its
document. The text may be larger than memory: it is worked on in chunks of documents of
--chunk_megabytes, and the random second segment of a pair comes from the same chunk. All examples
are shuffled, uniformly over all chunks, and dealt out to the output files in turn; until the end
that takes as much disk beside the first output file as the output itself. The same flags give the
same bytes, whatever --num_processes is.

A corpus (or chunk) of a single document has no other document for a random next segment: all its
pairs are then true neighbours (IsNext), and the program says so. --encoding_errors=strict refuses
text that is not UTF-8 with file and line, before any work; replace leaves such bytes out, as the
original does. Output files appear whole at the end, or not at all.
"""

import glob
import os
import signal
import sys

from absl import flags
from common.checkpoint_flags import new_tokenizer

from bert_tf import tool
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

flags.DEFINE_list(
    "input_file", None, "Text files or glob patterns, separated by commas.", required=True
)
flags.DEFINE_list(
    "output_file",
    None,
    "TFRecord files, separated by commas; examples go to them in turn.",
    required=True,
)
flags.DEFINE_string(
    "vocab_file", None, "The vocabulary that the BERT model is to be trained on.", required=True
)
flags.DEFINE_bool("do_lower_case", True, "Lower-case the text; off for a cased vocabulary.")
flags.DEFINE_bool(
    "do_whole_word_mask", False, "Mask all pieces of a word (## and what it continues) or none."
)
flags.DEFINE_integer("max_seq_length", 128, "Greatest length of an example.", lower_bound=5)
flags.DEFINE_integer(
    "max_predictions_per_seq", 20, "Greatest number of masked pieces in an example.", lower_bound=1
)
flags.DEFINE_integer("random_seed", 12345, "Seed of everything random.")
flags.DEFINE_integer(
    "dupe_factor",
    10,
    "How often the text is gone through, with other pairs and masks.",
    lower_bound=1,
)
flags.DEFINE_float("masked_lm_prob", 0.15, "Share of tokens to predict.", 0.0, 1.0)
flags.DEFINE_float(
    "short_seq_prob", 0.1, "How often a document is cut into shorter examples.", 0.0, 1.0
)
flags.DEFINE_integer(
    "num_processes", None, "Processes that make examples. Default: one for each CPU.", lower_bound=1
)
flags.DEFINE_integer(
    "chunk_megabytes",
    32,
    "Text that is worked on at a time. A process needs some 5 times as much memory; another value "
    "gives other examples.",
    lower_bound=1,
)
flags.DEFINE_enum(
    "encoding_errors",
    "strict",
    ["strict", "replace"],
    "What to do with bytes that are not UTF-8: refuse the file, or leave them out.",
)


def find_inputs():
    """The input files, patterns resolved."""
    paths = []
    for pattern in FLAGS.input_file:
        found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]
        if not found:
            raise UserError(f"--input_file: no file fits {pattern!r}.")
        paths += found
    for path in paths:
        if not os.path.isfile(path):
            raise UserError(f"--input_file: expected a text file. Received: {path}.")
    return paths


def check_outputs(inputs):
    """Says before any work that an output could not be written."""
    outputs = FLAGS.output_file
    for path in outputs:
        real = os.path.realpath(path)
        if [os.path.realpath(other) for other in outputs].count(real) > 1:
            raise UserError(f"--output_file: expected every file once. Received: {path} again.")
        if real in map(os.path.realpath, inputs):
            raise UserError(f"--output_file: {path} is an input file.")
        if os.path.isdir(path):
            raise UserError(f"--output_file: expected a file. Received: the directory {path}.")
        tool.require_writable(os.path.dirname(os.path.abspath(path)), "output_file")


def main():
    # As after Ctrl-C, files that are not finished are removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM; nothing was written"))
    inputs = find_inputs()
    check_outputs(inputs)

    from bert_tf.tasks.pretraining.create_data import create_pretraining_data
    from bert_tf.tasks.pretraining.document_chunks import scan_documents
    from bert_tf.tasks.pretraining.examples import ExampleOptions

    options = ExampleOptions(
        FLAGS.max_seq_length,
        FLAGS.max_predictions_per_seq,
        FLAGS.masked_lm_prob,
        FLAGS.short_seq_prob,
        FLAGS.do_whole_word_mask,
    )
    tokenizer = new_tokenizer(errors=FLAGS.encoding_errors)
    corpus = scan_documents(inputs, FLAGS.chunk_megabytes << 20, FLAGS.encoding_errors)
    alone = sum(chunk.documents == 1 for chunk in corpus.chunks)
    if alone:
        print(
            f"warning: {alone} of {len(corpus.chunks)} chunks hold one document only, so there is "
            "no random next segment for its pairs: all of them are IsNext. Put blank lines between "
            "documents, or train without next-sentence prediction.",
            file=sys.stderr,
        )
    summary = create_pretraining_data(
        corpus,
        FLAGS.output_file,
        tokenizer,
        options,
        FLAGS.dupe_factor,
        FLAGS.random_seed,
        FLAGS.num_processes or os.cpu_count(),
        FLAGS.encoding_errors,
    )
    if summary.tokens_cut > summary.tokens:
        print(
            "warning: more tokens were cut away than are left. One sentence a line was expected.",
            file=sys.stderr,
        )
    print(
        f"documents          {corpus.documents} in {len(corpus.chunks)} chunks, "
        f"{corpus.cuts} of them cut because too long for a chunk",
        *summary.lines(),
        sep="\n",
    )
    print(f"written            {', '.join(FLAGS.output_file)}")


if __name__ == "__main__":
    tool.run(main)
