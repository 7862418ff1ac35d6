"""Learning rates over a run."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Noam": ".noam",
        "WarmupCosineDecay": ".warmup_cosine_decay",
        "WarmupLinearDecay": ".warmup_linear_decay",
    },
)
