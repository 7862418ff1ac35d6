"""What the models of all tasks share: the backbone and the base classes."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"BertBackbone": ".backbone", "TaskModel": ".task_model"}
)
