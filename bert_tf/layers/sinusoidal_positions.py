"""Positions of sines and cosines: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5."""

import numpy as np

LONGEST_WAVE = 10_000.0  # Vaswani et al. 2017, in units of 2π positions


def sinusoidal_positions(length: int, width: int) -> np.ndarray:
    """Returns the positions of Vaswani et al. 2017, section 3.5, float32 `[length, width]`.

    Even columns are sines, odd ones cosines of the same frequencies.

    Example:
        >>> sinusoidal_positions(2, 2).round(2)
        array([[0.  , 1.  ],
               [0.84, 0.54]], dtype=float32)
    """
    columns = np.arange(width)
    frequencies = LONGEST_WAVE ** (-(columns - columns % 2) / width)
    angles = np.arange(length)[:, np.newaxis] * frequencies
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)
