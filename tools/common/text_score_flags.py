"""The flag for the scores of written texts."""

from bert_tf.tools.common.flag_table import define_flags

FLAG_HEADINGS = (("", "Scores of generated texts"),)


def define_tokenize():
    """Defines the flag for the words of BLEU and ROUGE."""
    define_flags("""
        tokenize (13a|intl|zh, 13a): How BLEU finds words, as sacrebleu names it; zh for Chinese
            targets, also for ROUGE.
    """)
