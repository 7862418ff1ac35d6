"""The encoders that BERT is compared with: their configurations and their pre-training.

They are `BertBackbone`s with another `encoder_type` in their `BertConfig`, so every task model,
reader, metric and tool takes them. This package has what trains them.
"""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BidirectionalLanguageModel": ".bidirectional_language_model",
        "NeuralLanguageModel": ".neural_language_model",
        "TokenRows": ".token_rows",
        "train_word_vectors": ".word_vectors",
    },
)
