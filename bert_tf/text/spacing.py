"""Restores written spaces between the words that a model outputs."""

import tensorflow as tf

_CJK = r"\x{2E80}-\x{303F}\x{31C0}-\x{31EF}\x{3400}-\x{4DBF}\x{4E00}-\x{9FFF}\x{F900}-\x{FAFF}"
_CJK += r"\x{FF00}-\x{FF0F}\x{FF1A}-\x{FF20}\x{20000}-\x{2FA1F}"
_PATTERNS = (
    (r" ([.,!?;:%)\]}])", r"\1"),
    (r"([(\[{]) ", r"\1"),
    (r"(\pL) (['’]) (s|t|m|d|re|ve|ll)\b", r"\1\2\3"),
    (r"(\pL) - (\pL)", r"\1-\2"),
    # Twice, because a match takes both neighbours of its space.
    *[(f"([{_CJK}]) ([{_CJK}])", r"\1\2")] * 2,
)
# transformers, `clean_up_tokenization`, in its order.
_CLEAN_UP = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


def without_tokenization_spaces(texts: tf.Tensor) -> tf.Tensor:
    """Removes the spaces that Hugging Face's `clean_up_tokenization_spaces` removes.

    Args:
        texts: Strings `[B]`.

    Returns:
        Strings `[B]`.

    Example:
        >>> without_tokenization_spaces(tf.constant(["is n't it ' s ?"]))
        <tf.Tensor: shape=(1,), dtype=string, numpy=array([b"isn't it's?"], dtype=object)>
    """
    for spaced in _CLEAN_UP:
        texts = tf.strings.regex_replace(
            texts, spaced.replace("?", r"\?").replace(".", r"\."), spaced.strip()
        )
    return texts


def with_written_spaces(texts: tf.Tensor) -> tf.Tensor:
    """Removes the spaces that the tokenizer put around punctuation and Chinese characters.

    It is a guess: what was between two words is lost in the tokens.

    Args:
        texts: Strings `[B]` of words with a space between any two, in UTF-8.

    Returns:
        Strings `[B]`.

    Example:
        >>> with_written_spaces(tf.constant(["he didn ' t (really) say so .", "你 好 ！"]))
        <tf.Tensor: shape=(2,), dtype=string, numpy=...>

    Reference: `transformers` tokenization_utils_base.py, `clean_up_tokenization`.
    """
    for pattern, replacement in _PATTERNS:
        texts = tf.strings.regex_replace(texts, pattern, replacement)
    return texts
