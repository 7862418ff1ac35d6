"""What the models of all tasks share: the backbone and the base classes."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BertBackbone": ".backbone",
        "TaskModel": ".task_model",
        "TextGenerator": ".text_generator",
        "resize_position_embeddings": ".position_embeddings",
        "set_sinusoidal_positions": ".position_embeddings",
    },
    moved={
        "Answer": "bert_tf.tasks.question_answering",
        "BertFeatureExtractor": "bert_tf",
        "BertMaskedLM": "bert_tf",
        "BertMultipleChoice": "bert_tf",
        "BertNextSentencePredictor": "bert_tf",
        "BertQuestionAnswerer": "bert_tf",
        "BertSentenceEncoder": "bert_tf",
        "BertTextClassifier": "bert_tf",
        "BertTokenClassifier": "bert_tf",
        "Candidate": "bert_tf.tasks.masked_lm",
        "DistillationModel": "bert_tf.compression",
        "TaggedSpan": "bert_tf.tasks.token_classification",
        "extend_positions": "bert_tf.models.position_embeddings:resize_position_embeddings",
        "student_from_teacher": "bert_tf.compression",
    },
)
