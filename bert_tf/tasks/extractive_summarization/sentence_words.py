"""The words of sentences that ROUGE and trigram blocking compare, in the graph or eagerly."""

import tensorflow as tf

# Scripts that write no spaces: each character is a word.
UNSPACED_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}"


def words_of(sentences: tf.Tensor) -> tf.RaggedTensor:
    """Returns the words of sentences: runs of letters and digits, in lower case.

    For ASCII these are the words of Google's `rouge-score` without stemming. That package drops all
    other letters.

    Args:
        sentences: Strings `[S]`, UTF-8.

    Returns:
        Ragged strings `[S, (words)]`.

    Example:
        >>> words_of(tf.constant(["It's 3.5 m.", "猫"])).to_list()
        [[b'it', b's', b'3', b'5', b'm'], [b'\\xe7\\x8c\\xab']]
    """
    lowered = tf.strings.lower(sentences, encoding="utf-8")
    spaced = tf.strings.regex_replace(lowered, f"([{UNSPACED_SCRIPTS}])", r" \1 ")
    return tf.strings.split(tf.strings.regex_replace(spaced, r"[^\pL\pM\pN]+", " "))
