"""ROUGE of summaries, computed by Google's package `rouge-score`."""

from collections.abc import Sequence

import numpy as np

from bert_tf.data.long_texts import split_sentences
from bert_tf.errors import UserError

_NAMES = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def rouge_scores(
    summaries: Sequence[str], references: Sequence[str], use_stemmer: bool = True
) -> dict[str, float]:
    """Returns the mean ROUGE F of summaries.

    Args:
        summaries: The summaries of N documents.
        references: The reference summary of each.
        use_stemmer: Whether words are compared by their stems (English), as papers report it.

    Returns:
        The means of `rouge1`, `rouge2`, `rougeL` and `rougeLsum`, in [0, 1]. `rougeLsum` compares
        sentence by sentence.

    Raises:
        UserError: If there is not one reference for each summary, no summary, or `rouge-score` is
            not installed.

    Example:
        >>> from bert_tf.errors import UserError
        >>> try:
        ...     scores = rouge_scores(["Ada wrote it."], ["Ada wrote a program."])
        ... except UserError:  # without rouge-score
        ...     scores = {}
        >>> scores.get("rouge1", 0.0) < 1.0
        True

    Reference: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries".
    """
    if len(summaries) != len(references) or not len(summaries):
        raise UserError(
            "`references` must be one for each of at least one summary. Received: "
            f"{len(summaries)} summaries, {len(references)} references"
        )
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise UserError(
            "rouge-score must be installed for ROUGE. Received: no module rouge_score. "
            "Run `pip install rouge-score`."
        ) from None
    scorer = RougeScorer(_NAMES, use_stemmer=use_stemmer)
    scores = [
        scorer.score(_sentence_lines(reference), _sentence_lines(summary))
        for summary, reference in zip(summaries, references)
    ]
    return {name: float(np.mean([score[name].fmeasure for score in scores])) for name in _NAMES}


def _sentence_lines(text):
    """One sentence per line, as `rougeLsum` expects."""
    return "\n".join(split_sentences(text))
