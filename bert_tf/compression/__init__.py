"""Smaller and faster models: 8-bit integers, distillation, pruning of heads, layer dropping."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "DistillationModel": ".distillation_model",
        "head_importance": ".importance",
        "least_important_heads": ".head_selection",
        "quantization_errors": ".layer_errors",
        "student_from_teacher": ".layer_dropping",
    },
)
