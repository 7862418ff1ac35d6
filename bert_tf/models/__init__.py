"""The Keras models, one task a file.

Names are loaded when they are first used: the tools look at their flags without TensorFlow.
"""

import importlib

_PUBLIC = {
    "Answer": "question_answerer",
    "BertBackbone": "backbone",
    "BertFeatureExtractor": "feature_extractor",
    "BertMaskedLM": "masked_lm",
    "BertMultipleChoice": "multiple_choice",
    "BertNextSentencePredictor": "next_sentence",
    "BertQuestionAnswerer": "question_answerer",
    "BertSentenceEncoder": "sentence_encoder",
    "BertTextClassifier": "text_classifier",
    "BertTokenClassifier": "token_classifier",
    "Candidate": "masked_lm",
    "DistillationModel": "distillation_model",
    "TaggedSpan": "token_classifier",
    "TaskModel": "task_model",
    "extend_positions": "position_extension",
    "student_from_teacher": "layer_dropping",
}

__all__ = list(_PUBLIC)


def __getattr__(name):
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"bert_tf.models.{_PUBLIC[name]}"), name)
    raise AttributeError(
        f"module 'bert_tf.models' has no attribute {name!r}. Public names: {__all__}"
    )


def __dir__():
    return sorted(__all__)
