"""The flags of the programs that create pre-training examples, and their checks and messages."""

import os
import sys

from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.console import print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags

define_flags("""
    input_file (list): The text files, as paths or glob patterns.
    output_file (list): The TFRecord files to write in turn.
    vocab_file (str): The vocabulary file of the model to pre-train.
    do_lower_case (bool, true): Whether to convert the text to lower case; false for a cased
        vocabulary.
    vocab_segmenter (jieba): The --segmenter that --vocab_file was learned with: its Chinese words
        become one token.
    do_whole_word_mask (bool, false): Whether to mask either all pieces of a word or none.
    max_seq_length (int >= 5, 128): Maximum length of an example in tokens.
    max_predictions_per_seq (int >= 1, 20): Maximum number of masked tokens per example.
    random_seed (int, 12345): Seed of the pairs, the masks and the shuffling.
    dupe_factor (int >= 1, 10): Number of times that the text is used, each time with other pairs
        and masks.
    masked_lm_prob (float 0 to 1, 0.15): Share of the tokens to mask.
    short_seq_prob (float 0 to 1, 0.1): Probability of making an example shorter than
        --max_seq_length on purpose.
    chunk_megabytes (int >= 1, 32): Size of the text that is processed at a time, in megabytes. A
        process needs about 5 times as much memory. Another value gives other examples.
    encoding_errors (strict|replace, strict): What to do with bytes that are not UTF-8. strict:
        refuse the file before any work; replace: leave them out, as the original does.
""")


def check_outputs(outputs, inputs):
    """Checks before any work that the outputs can be written."""
    for path in outputs:
        real = os.path.realpath(path)
        if [os.path.realpath(other) for other in outputs].count(real) > 1:
            raise UserError(f"--output_file must name every file once. Received: {path} twice")
        if "://" not in path:  # Beam's file systems have no directories to check
            tool.require_output_file(path, "output_file", inputs)
        elif path in inputs:
            raise UserError(f"--output_file must not be an input file. Received: {path}")


def example_options():
    """Returns the `ExampleOptions` of the flags."""
    from bert_tf.tasks.pretraining.examples import ExampleOptions

    names = ("max_seq_length", "max_predictions_per_seq", "masked_lm_prob", "short_seq_prob")
    return ExampleOptions(**options_of(*names, "do_whole_word_mask"))


def warn_of_single_documents(corpus):
    """Prints a warning if chunks have one document only."""
    alone = sum(chunk.documents == 1 for chunk in corpus.chunks)
    if alone:
        print(
            f"warning: {alone} of {len(corpus.chunks)} chunks have only one document, so there is "
            "no random next segment for their pairs: all of them are IsNext. Put blank lines "
            "between documents, or train without next sentence prediction.",
            file=sys.stderr,
        )


def print_summary(corpus, summary):
    """Prints the counts of the documents and of the examples, and the next step."""
    if summary.tokens_cut > summary.tokens:
        print(
            "warning: more tokens were truncated than kept. The input must have one sentence per "
            "line.",
            file=sys.stderr,
        )
    print(
        f"documents          {corpus.documents} in {len(corpus.chunks)} chunks, "
        f"{corpus.cuts} of them split because they are too long for a chunk",
        *summary.lines(),
        sep="\n",
    )
    files = ",".join(FLAGS.output_file)
    options = {"bert_config_file": "CONFIG", "output_dir": "DIRECTORY"}
    print_result("examples", files, "Pre-train", "run_pretraining", input_file=files, **options)
