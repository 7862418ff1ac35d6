"""GELU and SiLU in NumPy float64, and their derivatives."""

import math

import numpy as np

_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(v):
    return 1.0 / (1.0 + np.exp(-v))


def _argument(s):
    return 2.0 * math.sqrt(2.0 / math.pi) * (s + 0.044715 * s**3)


def silu(s):
    with np.errstate(over="ignore"):
        return np.asarray(s, np.float64) * _sigmoid(s)


def silu_slope(s):
    with np.errstate(over="ignore"):
        return _sigmoid(s) * (1.0 + s * _sigmoid(-s))


def gelu(s, approximate):
    s = np.asarray(s, np.float64)
    if approximate:
        with np.errstate(over="ignore"):
            return s * _sigmoid(_argument(s))
    return s * 0.5 * _erfc(-s * math.sqrt(0.5))


def gelu_slope(s, approximate):
    s = np.asarray(s, np.float64)
    if approximate:
        with np.errstate(over="ignore"):
            step, other = _sigmoid(_argument(s)), _sigmoid(-_argument(s))
        slope = 2.0 * math.sqrt(2.0 / math.pi) * (1.0 + 3.0 * 0.044715 * s**2)
        return step + s * step * other * slope
    bell = np.exp(-0.5 * s**2) / math.sqrt(2.0 * math.pi)
    return 0.5 * _erfc(-s * math.sqrt(0.5)) + s * bell
