"""The encoders before BERT, which it is compared with: word vectors, NNLM and ELMo.

A `BaselineBackbone` takes the place of a `BertBackbone` in the task models. Files of this package's
own format name it; import this package before such a file is opened.
"""

from bert_tf.baselines.backbone import BaselineBackbone
from bert_tf.baselines.bidirectional_language_model import BidirectionalLanguageModel
from bert_tf.baselines.config import BaselineConfig
from bert_tf.baselines.neural_language_model import NeuralLanguageModel
from bert_tf.baselines.token_rows import TokenRows
from bert_tf.baselines.word_vectors import train_word_vectors

__all__ = [
    "BaselineBackbone",
    "BaselineConfig",
    "BidirectionalLanguageModel",
    "NeuralLanguageModel",
    "TokenRows",
    "train_word_vectors",
]
