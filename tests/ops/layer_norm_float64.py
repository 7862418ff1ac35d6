"""LayerNorm(residual + dropout(x + bias)) in NumPy float64, with its own gradients.

`is_rms` makes it RMSNorm.
"""

import numpy as np


def residual_layer_norm(x, residual, bias, gamma, beta, epsilon, keep=1.0, is_rms=False):
    """Returns y and what the gradient needs. `keep` is the dropout mask times its scale."""
    z = np.asarray(x, np.float64)
    if bias is not None:
        z = z + bias
    z = np.where(np.asarray(keep) == 0.0, 0.0, z * keep)
    if residual is not None:
        z = z + residual
    mean = 0.0 if is_rms else z.mean(-1, keepdims=True)
    rstd = 1.0 / np.sqrt(((z - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    normalized = (z - mean) * rstd
    return normalized * gamma + beta, (normalized, rstd)


def residual_layer_norm_gradients(dy, gamma, saved, keep=1.0, is_rms=False):
    """Returns dx, dresidual, dbias, dgamma, dbeta."""
    normalized, rstd = saved
    g = dy * gamma
    g_mean = 0.0 if is_rms else g.mean(-1, keepdims=True)
    dz = rstd * (g - g_mean - normalized * (g * normalized).mean(-1, keepdims=True))
    dx = dz * keep
    rows = tuple(range(dy.ndim - 1))
    return dx, dz, dx.sum(rows), (dy * normalized).sum(rows), dy.sum(rows)
