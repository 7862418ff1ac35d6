"""BERT for TensorFlow and Keras 3.

Public names are loaded when they are first used, so that `import bert_tf` costs little beyond
TensorFlow's own import.
"""

import importlib

_PUBLIC = {
    "BertConfig": "bert_tf.config",
    "BertTokenizer": "bert_tf.text.tokenizer",
    "BertBackbone": "bert_tf.models.backbone",
    "BertPretrainer": "bert_tf.models.pretrainer",
    "BertMaskedLM": "bert_tf.models.masked_lm",
    "BertNextSentencePredictor": "bert_tf.models.next_sentence",
    "BertQuestionAnswerer": "bert_tf.models.question_answerer",
    "BertTextClassifier": "bert_tf.models.text_classifier",
    "BertTokenClassifier": "bert_tf.models.token_classifier",
    "BertMultipleChoice": "bert_tf.models.multiple_choice",
    "BertSentenceEncoder": "bert_tf.models.sentence_encoder",
    "BertFeatureExtractor": "bert_tf.models.feature_extractor",
}
_SUBPACKAGES = (
    "checkpoints",
    "data",
    "layers",
    "models",
    "ops",
    "search",
    "serving",
    "text",
    "training",
)

__version__ = "0.1.0"
__all__ = [*_PUBLIC, *_SUBPACKAGES]  # noqa: PLE0604


def __getattr__(name):
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    if name in _SUBPACKAGES:
        return importlib.import_module(f"bert_tf.{name}")
    raise AttributeError(f"module 'bert_tf' has no attribute {name!r}. Public names: {__all__}")


def __dir__():
    return sorted(__all__)
