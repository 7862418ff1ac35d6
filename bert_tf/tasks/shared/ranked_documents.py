"""Documents in the order in which they fit a query: what `rank` of several tasks returns."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError
from bert_tf.inputs.containers import is_text


class RankedDocument(NamedTuple):
    """A document and how well it fits a query.

    Attributes:
        index: Its number in the list of documents, from 0.
        score: What `score` returns for the query and it.
        text: The document itself.

    Example:
        >>> RankedDocument(2, 0.75, "Paris is a city.").text
        'Paris is a city.'
    """

    index: int
    score: float
    text: str


def check_ranking(query: Any, documents: Any, top_k: Any) -> None:
    """Checks the arguments of `rank`.

    Raises:
        UserError: If `query` is no string, `documents` is one, or `top_k` is less than 1.
    """
    if not is_text(query) or is_text(documents):
        raise UserError(
            "`query` must be a string and `documents` a list of strings. Received: "
            f"query={type(query).__name__}, documents={type(documents).__name__}"
        )
    if top_k is not None and (not is_integer(top_k) or top_k < 1):
        raise UserError(f"`top_k` must be an integer of at least 1. Received: top_k={top_k!r}")


def best_documents(
    scores: np.ndarray, documents: Sequence[Any], top_k: int | None
) -> list[RankedDocument]:
    """Returns the `top_k` documents with the highest scores `[n]`; None: all.

    If scores are equal, the first document comes first.
    """
    order = np.argsort(-scores, kind="stable")[:top_k].tolist()
    return [RankedDocument(i, float(scores[i]), _shown(documents[i])) for i in order]


def _shown(text):
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
