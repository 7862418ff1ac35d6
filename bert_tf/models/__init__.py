"""What the models of all tasks share: the backbone and the base classes."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "BertBackbone": ".backbone",
        "EMBEDDINGS": ".task_spec",
        "RERANK": ".task_spec",
        "SPARSE_EMBEDDINGS": ".task_spec",
        "TOKEN_EMBEDDINGS": ".task_spec",
        "CLASS_AXIS": ".task_spec",
        "END_AXIS": ".task_spec",
        "Preprocessor": ".preprocessor",
        "TOKEN_AXIS": ".task_spec",
        "TaskModel": ".task_model",
        "VECTOR_AXIS": ".task_spec",
        "WORD_AXIS": ".task_spec",
    },
)
