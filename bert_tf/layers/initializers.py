"""The weight initializer of google-research/bert."""

import keras


def bert_initializer(
    standard_deviation: float, seed: int | None = None
) -> keras.initializers.Initializer:
    """Returns a normal initializer that is truncated at two standard deviations.

    Reference: google-research/bert modeling.py, `create_initializer`.
    """
    return keras.initializers.TruncatedNormal(stddev=standard_deviation, seed=seed)
