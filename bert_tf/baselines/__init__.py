"""The encoders before BERT, which it is compared with: word vectors, NNLM and ELMo.

A `BaselineBackbone` takes the place of a `BertBackbone` in the task models. Files of this package's
own format name it; import this package before such a file is opened.
"""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BaselineBackbone": ".backbone",
        "BaselineConfig": ".config",
        "BidirectionalLanguageModel": ".bidirectional_language_model",
        "NeuralLanguageModel": ".neural_language_model",
        "TokenRows": ".token_rows",
        "train_word_vectors": ".word_vectors",
    },
)
