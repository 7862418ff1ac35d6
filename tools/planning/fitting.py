"""Least squares with coefficients that are not negative, on relative errors."""

from collections.abc import Sequence

import numpy as np


def fit(features: Sequence[Sequence[float]], seconds: Sequence[float]) -> list[float]:
    """Returns coefficients c ≥ 0 such that features · c is near the seconds.

    Every row counts by its relative error, so that short times count as much as long ones.
    Coefficients that would be negative are set to zero, one after the other.

    Args:
        features: `[measurements, coefficients]`.
        seconds: `[measurements]`, all above 0.
    """
    matrix = np.asarray(features, float) / np.asarray(seconds, float)[:, np.newaxis]
    kept = list(range(matrix.shape[1]))
    result = [0.0] * matrix.shape[1]
    while kept:
        columns = matrix[:, kept]
        scale = np.linalg.norm(columns, axis=0)
        scale[scale == 0] = 1.0
        solution = np.linalg.lstsq(columns / scale, np.ones(len(matrix)), rcond=None)[0] / scale
        if solution.min() >= 0:
            for index, value in zip(kept, solution):
                result[index] = float(value)
            break
        kept.pop(int(np.argmin(solution * scale)))
    return result
