"""Attention rollout: how much of each token reaches each token through all layers so far.

Reference: Abnar & Zuidema 2020 (arXiv 2005.00928), section 3.1.
"""

import numpy as np

# The residual connection adds a token's own vector to what it attends to, so both count half.
RESIDUAL_SHARE = 0.5


def attention_rollout(attentions: np.ndarray) -> np.ndarray:
    """Returns the attention of every layer to the tokens of the input.

    Args:
        attentions: The probabilities of the heads, `[L, N, T, T]`; rows of zeros for heads that are
            pruned.

    Returns:
        float64 `[L, T, T]`; row i of layer l says how much of each token of the input is in token i
        after layer l. Rows sum to 1.

    Example:
        >>> uniform = np.full([2, 1, 2, 2], 0.5)
        >>> attention_rollout(uniform)[-1]
        array([[0.625, 0.375],
               [0.375, 0.625]])
    """
    mean = np.sum(attentions, axis=1, dtype=np.float64)  # [L, N, T, T] -> [L, T, T]
    mean /= mean.sum(axis=-1, keepdims=True)  # the heads that are there count alike
    own = np.eye(mean.shape[-1])
    rolled, layers = own, []
    for layer in mean:
        mixed = RESIDUAL_SHARE * own + (1 - RESIDUAL_SHARE) * layer
        rolled = mixed @ rolled
        layers.append(rolled)
    return np.stack(layers)
