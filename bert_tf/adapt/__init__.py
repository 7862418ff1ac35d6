"""What can be done to a model: 8-bit integers, distillation, denoising, pruning, more positions."""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "DenoisingAutoencoder": ".denoising_autoencoder",
        "DistillationModel": ".distillation_model",
        "distill_static": ".static_embeddings",
        "few_shot_pairs": ".few_shot",
        "fit_few_shot": ".few_shot",
        "head_importance": ".importance",
        "least_important_heads": ".importance",
        "quantization_errors": ".calibration",
        "resize_position_embeddings": ".position_embeddings",
        "resize_token_embeddings": ".token_embeddings",
        "set_sinusoidal_positions": ".position_embeddings",
        "student_from_teacher": ".layer_dropping",
    },
)
