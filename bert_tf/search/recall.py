"""How much of an exact search an approximate one finds."""

import numpy as np

from bert_tf.errors import user_error


def search_recall(found_rows: np.ndarray, exact_rows: np.ndarray) -> float:
    """Returns the share of the exact results that another search finds, from 0 to 1.

    Args:
        found_rows: Row numbers `[Q, k]`, such as those of faiss, usearch or an index of bits.
        exact_rows: The row numbers that `top_k` finds on floats, `[Q, k]`.

    Raises:
        UserError: If there are no rows, or not as many queries.

    Example:
        >>> search_recall(np.array([[0, 1], [2, 3]]), np.array([[1, 0], [3, 7]]))
        0.75
    """
    found_rows, exact_rows = np.asarray(found_rows), np.asarray(exact_rows)
    if exact_rows.ndim != 2 or not exact_rows.size or len(found_rows) != len(exact_rows):
        expected = "be [Q, k], with at least one row"
        received = f"{found_rows.shape} and {exact_rows.shape}"
        raise user_error("`found_rows` and `exact_rows`", expected, received)
    pairs = zip(found_rows, exact_rows)
    return float(np.mean([np.isin(exact, found).mean() for found, exact in pairs]))
