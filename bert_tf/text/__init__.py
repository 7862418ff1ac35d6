"""Text in: the tokenizer, vocabularies, whole words.

Nothing here imports tensorflow-text before a tokenizer tokenizes for the first time.
"""

import importlib

_PUBLIC = {
    "BertTokenizer": "bert_tf.text.tokenizer",
    "jieba_segmenter": "bert_tf.text.whole_words",
    "learn_vocabulary": "bert_tf.text.vocabulary_learning",
    "read_vocabulary": "bert_tf.text.vocabulary",
    "whole_word_units": "bert_tf.text.whole_words",
    "write_vocabulary": "bert_tf.text.vocabulary",
}

__all__ = list(_PUBLIC)


def __getattr__(name):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'bert_tf.text' has no attribute {name!r}. Names: {__all__}")


def __dir__():
    return sorted(__all__)
