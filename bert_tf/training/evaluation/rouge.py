"""ROUGE of texts against references, computed by Google's package `rouge-score`.

Glossary: `n` texts.
"""

import re
from collections.abc import Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, user_error
from bert_tf.inputs.long_texts import split_sentences

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
_UNIT = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")


def rouge_scores(
    predicted: Sequence[str],
    references: Sequence[str],
    use_stemmer: bool = True,
    ideographs: bool = False,
) -> dict[str, float]:
    """Computes the mean ROUGE F of texts.

    Args:
        predicted: The `n` texts, for example summaries.
        references: The `n` references, one for each.
        use_stemmer: Whether words are compared by their stems (English), as papers report it.
        ideographs: Whether a unit is an ideograph or a word of any letters, never a stem;
            otherwise it is a word of the letters a-z and digits, as in rouge-score.

    Returns:
        The means of `rouge1`, `rouge2`, `rougeL` and `rougeLsum`, from 0 to 100. `rougeLsum`
        compares sentence by sentence.

    Raises:
        DataError: If there are no texts, or not as many references.
        UserError: If rouge-score is missing.

    Example:
        >>> from bert_tf.training.evaluation.rouge import rouge_scores
        >>> scores = rouge_scores(["the cat sat"], ["the cats sit"])  # doctest: +SKIP
        >>> round(scores["rouge1"], 1)  # doctest: +SKIP
        66.7

    Reference: Lin 2004, "ROUGE: A Package for Automatic Evaluation of Summaries".
    """
    values = rouge_of_texts(predicted, references, ROUGE_TYPES, use_stemmer, ideographs)
    return dict(zip(ROUGE_TYPES, values.mean(axis=0).tolist()))  # [n, types] -> [types]


def rouge_of_texts(
    predicted: Sequence[str],
    references: Sequence[str],
    types: Sequence[str] = ROUGE_TYPES,
    use_stemmer: bool = True,
    ideographs: bool = False,
) -> np.ndarray:
    """Computes the ROUGE F of each text, from 0 to 100.

    Args:
        types: Which of `ROUGE_TYPES`.
        predicted, references, use_stemmer, ideographs: See `rouge_scores`.

    Returns:
        float64 `[n, types]`.

    Raises:
        DataError, UserError: See `rouge_scores`.
    """
    require_references(predicted, references)
    rouge_scorer = require_package("rouge_score.rouge_scorer", "ROUGE")
    tokenizer = _IdeographTokenizer() if ideographs else None
    scorer = rouge_scorer.RougeScorer(list(types), use_stemmer=use_stemmer, tokenizer=tokenizer)
    found = (
        scorer.score(_sentence_lines(reference), _sentence_lines(text))
        for text, reference in zip(predicted, references)
    )
    return 100.0 * np.array([[scores[kind].fmeasure for kind in types] for scores in found])


def require_references(predicted: Sequence[str], references: Sequence[str]) -> None:
    """Checks that there are texts and one reference, a string, for each.

    Raises:
        DataError: If not.
    """
    if not len(predicted) or len(predicted) != len(references):
        expected = "have one text for each of `predicted`, at least one"
        received = f"len(references)={len(references)}, len(predicted)={len(predicted)}"
        raise user_error("`references`", expected, received, DataError)
    for name, texts in (("predicted", predicted), ("references", references)):
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                raise DataError(
                    f"`{name}` must be strings, one for each text. Received in row {row}: {text!r}"
                )


def _sentence_lines(text):
    """Puts one sentence on a line, as `rougeLsum` expects; the other scores ignore white space."""
    return "\n".join(split_sentences(text))


class _IdeographTokenizer:
    """A tokenizer of rouge-score: ideographs, and words between them."""

    def tokenize(self, text):
        return _UNIT.findall(text.lower())
