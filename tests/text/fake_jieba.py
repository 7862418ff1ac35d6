"""A jieba with a dictionary of a few words: tests need not have one of the two packages."""

import re
import sys
import types

from bert_tf.text.chinese_words import jieba_cut

WORDS = ("北京大学", "北京", "大学", "今天", "天气", "非常", "t恤", "c++", "\U00020000中")
_WORD = "|".join(map(re.escape, WORDS))


def cut(text, hmm=True):
    """The longest words of the dictionary, runs of English letters and digits, and characters."""
    assert not hmm
    return re.findall(rf"(?s){_WORD}|[a-zA-Z0-9]+|\r\n|.", text)


def _lcut(text, HMM=True):
    return cut(text, HMM)


def install(module="rjieba"):
    """Makes it the only installed one of the two packages, in this process."""
    fakes = {"rjieba": types.SimpleNamespace(cut=cut), "jieba": types.SimpleNamespace(lcut=_lcut)}
    sys.modules.update({name: fakes[name] if name == module else None for name in fakes})
    jieba_cut.cache_clear()
