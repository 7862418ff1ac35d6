"""Text processing: the tokenizer, vocabularies and whole words.

tensorflow-text is imported when it is first needed, not with this package.
"""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BertTokenizer": ".tokenizer",
        "CJK_BLOCKS": ".unicode_tables",
        "Encoding": ".encoding",
        "SubwordTokenizer": ".subword_tokenizer",
        "Tokenizer": ".tokenizer_base",
        "TokenizerLayer": ".tokenizer_layer",
        "byte_characters": ".byte_pairs",
        "count_words": ".vocabulary_learning",
        "encode": ".encoding",
        "jieba_segmenter": ".whole_words",
        "learn_unigram": ".unigram_learning",
        "learn_vocabulary": ".vocabulary_learning",
        "load_tokenizer": ".loading",
        "read_vocabulary": ".vocabulary",
        "whole_word_units": ".whole_words",
        "write_vocabulary": ".vocabulary",
    },
)
