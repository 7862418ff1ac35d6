"""The flag for the scores of written texts."""

from absl import flags

FLAG_HEADINGS = (("", "Scores of generated texts"),)


def define_tokenize():
    """Defines the flag for the words of BLEU and ROUGE."""
    flags.DEFINE_enum(
        "tokenize",
        "13a",
        ["13a", "intl", "zh"],
        "How BLEU finds words, as sacrebleu names it; zh for Chinese targets, also for ROUGE.",
    )
