"""The encoders before BERT, which it is compared with: word vectors, NNLM and ELMo.

A `BaselineBackbone` takes the place of a `BertBackbone` in the task models. Files of this package's
own format name it; import this package before such a file is opened.
"""

from research.baselines.backbone import BaselineBackbone
from research.baselines.bidirectional_language_model import BidirectionalLanguageModel
from research.baselines.config import BaselineConfig
from research.baselines.neural_language_model import NeuralLanguageModel
from research.baselines.token_rows import TokenRows
from research.baselines.word_vector_files import read_word_vectors
from research.baselines.word_vectors import train_word_vectors

__all__ = [
    "BaselineBackbone",
    "BaselineConfig",
    "BidirectionalLanguageModel",
    "NeuralLanguageModel",
    "TokenRows",
    "read_word_vectors",
    "train_word_vectors",
]
