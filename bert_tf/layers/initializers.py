"""The original's weight initializer."""

import keras


def bert_initializer(
    standard_deviation: float, seed: int | None = None
) -> keras.initializers.Initializer:
    """Truncated normal, cut at two standard deviations (google-research/bert modeling.py)."""
    return keras.initializers.TruncatedNormal(stddev=standard_deviation, seed=seed)
