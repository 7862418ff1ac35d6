"""Documents in the order in which they fit a query, and cross-entropy over their scores.

Glossary: `B` queries, `M` documents that each is compared with.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, user_error
from bert_tf.inputs.columns import is_text


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


class RanksDocuments:
    """A part of task models that score documents for a query, before `TaskModel` in their bases."""

    def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> np.ndarray | np.float32:
        """Returns how well each document fits its query.

        Args:
            queries, documents: n strings each, or one.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            float32 `[n]`; for one pair of strings a float32.

        Raises:
            UserError: If there are not as many documents as queries, or there is no tokenizer.
            DataError: If a text is missing or malformed.
        """
        return self.predict_decoded((queries, documents), batch_size, token_budget, verbose)

    def document_scores(self, query: str, documents: list[str], **batching: Any) -> np.ndarray:
        """Returns the score of each document, float32 `[n]`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `document_scores`.")

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> list[RankedDocument]:
        """Returns the documents that fit a query best, the best first.

        Args:
            query: The query.
            documents: The documents.
            top_k: How many to return; None for all.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            `RankedDocument`s. Of equal scores the first document comes first.

        Raises:
            UserError: If `query` is no string, `documents` is one, `top_k` is less than 1, or there
                is no tokenizer.
            DataError: If a text is missing or malformed.
        """
        if not is_text(query) or is_text(documents):
            received = f"query={type(query).__name__}, documents={type(documents).__name__}"
            raise user_error("`query`", "be a string and `documents` a list of strings", received)
        if top_k is not None and (not is_integer(top_k) or top_k < 1):
            raise UserError(f"`top_k` must be an integer of at least 1. Received: top_k={top_k!r}")
        documents = list(documents)
        batching = {"batch_size": batch_size, "token_budget": token_budget, "verbose": verbose}
        scores = self.document_scores(query, documents, **batching)
        order = np.argsort(-scores, kind="stable")[:top_k].tolist()
        return [RankedDocument(i, float(scores[i]), _shown(documents[i])) for i in order]


def _shown(text):
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)


def document_cross_entropy(numbers: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the cross-entropy `[B]` of finding the documents `[B]` by scores `[B, M]`."""
    # Not the fused cross-entropy, which fails for the empty last batch of a replica.
    return tf.reduce_logsumexp(scores, axis=-1) - score_of(numbers, scores)


def score_of(numbers: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the scores `[B]` of the documents `[B]`, of scores `[B, M]`."""
    return tf.gather(scores, tf.cast(tf.reshape(numbers, [-1]), tf.int32), batch_dims=1)
