"""The flags that say how rankings of several searches become one."""

import numpy as np

from bert_tf.errors import user_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Several rankings"),)
LEAST_DEPTH = 100  # documents of a ranking that is fused


def define(of):
    """Defines the flags; `of` says when there are several rankings."""
    define_flags(f"""
        bm25 (bool, false): Whether texts are searched by their words too, with BM25. Needs bm25s.
        fusion (rrf|weighted, rrf): {of}: how one is made of them. rrf: by the ranks of each
            document, 1 / (60 + rank); weighted: by its scores, moved to 0 to 1.
        fusion_weights (list): {of}: a number for each, at least 0. Default: 1 for each.
    """)


def weights(num_rankings):
    """Returns the numbers of --fusion_weights, or None."""
    given = FLAGS.fusion_weights
    if given is None:
        return None
    try:
        numbers = [float(number) for number in given]
    except ValueError:
        numbers = []
    if len(numbers) != num_rankings or not all(0 <= number < np.inf for number in numbers):
        expected = f"be {num_rankings} numbers of at least 0, one for each ranking"
        raise user_error("--fusion_weights", expected, ",".join(given))
    return numbers
