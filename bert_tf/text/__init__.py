"""Text in: the tokenizer, vocabularies, whole words.

Nothing here imports tensorflow-text before a tokenizer tokenizes for the first time.
"""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BertTokenizer": ".tokenizer",
        "jieba_segmenter": ".whole_words",
        "learn_vocabulary": ".vocabulary_learning",
        "read_vocabulary": ".vocabulary",
        "whole_word_units": ".whole_words",
        "write_vocabulary": ".vocabulary",
    },
)
