"""Added tokens: texts that are found before a text is split, and have an id of their own.

Some are found in the text as it is, others in the normalized text, as Hugging Face's `tokenizers`
does. This module is imported if a tokenizer has some.

Reference: huggingface/tokenizers `tokenizer/added_vocabulary.rs`.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from bert_tf.base.json_schema import check
from bert_tf.base.ragged_rows import repeated
from bert_tf.errors import ConfigError, require, user_error
from bert_tf.text import unicode_tables as unicode
from bert_tf.text.code_points import CodePoints, PieceModel
from bert_tf.text.kept_whole import KeptWhole, literal_patterns
from bert_tf.text.tokenizer_json import ADDED_TOKEN, MOST_ADDED_TOKENS, with_flags
from bert_tf.text.unigram import Normalized
from bert_tf.text.word_splitter import WordSplitter

_BLANK = ord(" ")


def checked_tokens(
    tokens: Iterable[str | Mapping[str, Any]], special: bool, known: Iterable[str]
) -> list[dict[str, Any]]:
    """Returns added tokens with all flags, without those that are `known` or repeated.

    Raises `ConfigError` if one of them is not a token, or there are too many.
    """
    if isinstance(tokens, (str, Mapping)):
        raise user_error("`tokens`", "be a list of tokens", f"{tokens!r:.200}.", ConfigError)
    found, known = {}, set(known)
    for token in tokens:
        token = {"content": token, "special": special} if isinstance(token, str) else token
        check(token, ADDED_TOKEN, "an added token", ConfigError)
        token = with_flags(token)
        content = token["content"]
        require(content.strip(), "of an added token must have text", content=content)
        rule = "of an added token must be False: it is found in words too"
        fix = "Change the flag, or pass `added_tokens` without this token."
        require(not token["single_word"], rule, ConfigError, fix, **{"single_word": 0, **token})
        if content not in known:
            found.setdefault(content, token)
    rule = f"must be at most {MOST_ADDED_TOKENS} tokens. Learn a vocabulary with more"
    require(len(found) <= MOST_ADDED_TOKENS, rule, tokens=len(found))
    return list(found.values())


def around(
    model: PieceModel, splitter: WordSplitter, literals: tuple[tuple[str, int, bool, bool], ...]
) -> PieceModel:
    """Returns a WordPiece model that keeps literals whole which it finds in normalized text.

    For the literals see `literal_patterns`.
    """
    normalization = [functools.partial(_normalized, splitter)]
    texts = Normalized(normalization)([text for text, *_ in literals])
    patterns = literal_patterns((text, *of[1:]) for text, of in zip(texts, literals))
    found = Normalized(normalization, KeptWhole(model, patterns) if patterns else model)
    found.errors = splitter.errors
    return found


def _normalized(splitter: WordSplitter, points: CodePoints) -> CodePoints:
    """Returns code points as `WordSplitter` normalizes them, with the spaces between them.

    A capital sigma stays, because its place in a word decides what it becomes.
    """
    table = splitter.table(splitter.strip_accents, splitter.strip_accents)

    def has(entries, flags):
        return tf.bitwise.bitwise_and(entries, flags) != 0

    entries = table.entries(points.values)
    kept = has(entries, unicode.KEPT)
    sources = tf.where(kept | has(entries, unicode.SPACE))[:, 0]
    points = points.gather(sources)
    entries, kept = tf.gather(entries, sources), tf.gather(kept, sources)
    payload = tf.where(kept, tf.bitwise.right_shift(entries, unicode.PAYLOAD_SHIFT), 0)
    stays = points.values == unicode.CAPITAL_SIGMA
    rules = tf.where(has(entries, unicode.EXPANDS) & kept & ~stays, payload, 0)
    changed = tf.where(stays, points.values, points.values + payload)
    changed = tf.where(kept, changed, _BLANK)
    values, again = table.expansions(changed, rules)
    points, ideograph = points.gather(again), tf.gather(has(entries, unicode.CJK) & kept, again)
    sources, within = repeated(1 + 2 * tf.cast(ideograph, tf.int64))  # a space at both sides
    is_space = tf.gather(ideograph, sources) & (within != 1)
    values = tf.where(is_space, _BLANK, tf.gather(values, sources))
    return points.gather(sources)._replace(values=values)
