"""Scores of generated texts against references: ROUGE by rouge-score, BLEU and chrF by sacrebleu.

Glossary: `n` texts.
"""

import re
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, require_one_of, user_error
from bert_tf.inputs.long_texts import split_sentences
from bert_tf.training.evaluation.scores import drawn_intervals

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
        >>> from bert_tf.training.evaluation.generated_text import rouge_scores
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
    """Computes the ROUGE F of each text, from 0 to 100, float64 `[n, types]`.

    `types` are some of `ROUGE_TYPES`. The other arguments and the errors are those of
    `rouge_scores`.
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
    """Raises `DataError` if there is no text, or not one reference, a string, for each."""
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


# sacrebleu's names: 13a is that of WMT, intl knows Unicode's punctuation, zh splits ideographs.
TOKENIZERS = ("13a", "intl", "zh")
_ROUGE_TYPES = ("rouge1", "rouge2", "rougeL")


def generated_text_scores(
    predicted: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> dict[str, float]:
    """Computes BLEU and chrF of a corpus, and the means of ROUGE-1, ROUGE-2 and ROUGE-L.

    Args:
        predicted: The `n` generated texts.
        references: The `n` references, one for each.
        tokenize: "13a", "intl" or "zh": how BLEU finds words. With "zh", a unit of ROUGE is an
            ideograph or a word; otherwise a word of the letters a-z and digits, as in rouge-score.

    Returns:
        `bleu`, `chrf`, `rouge1`, `rouge2` and `rougeL` (F1, without stemming), from 0 to 100.

    Raises:
        DataError: If there are no texts, or not as many references.
        UserError: If sacrebleu or rouge-score is missing, or `tokenize` is unknown.

    Example:
        >>> from bert_tf.training.evaluation.generated_text import generated_text_scores
        >>> scores = generated_text_scores(["the cat sat"], ["the cat sat"])  # doctest: +SKIP
        >>> round(scores["chrf"], 6)  # doctest: +SKIP
        100.0

    Reference: Papineni et al. 2002 (BLEU), Popović 2015 (chrF), Lin 2004 (ROUGE), Post 2018
        (sacrebleu).
    """
    scores = _scores_of_rows(predicted, references, tokenize)
    return scores(np.arange(len(predicted)))


def generated_text_intervals(
    predicted: Sequence[str],
    references: Sequence[str],
    tokenize: str = "13a",
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Computes bootstrap intervals over texts for the scores of `generated_text_scores`.

    Args:
        predicted, references, tokenize: See `generated_text_scores`.
        samples, confidence, seed: See `bert_tf.training.evaluation.scores.drawn_intervals`.

    Returns:
        The intervals (low, high) by the name of the score.

    Raises:
        DataError: If there are no texts, or not as many references.
        UserError: If sacrebleu or rouge-score is missing, `tokenize` is unknown, or `samples` or
            `confidence` is out of range.

    Reference: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation".
    """
    scores = _scores_of_rows(predicted, references, tokenize)
    return drawn_intervals(scores, len(predicted), samples, confidence, seed)


def require_text_metrics() -> None:
    """Raises `UserError` if sacrebleu or rouge-score is missing. Tools call it before any work."""
    for module in ("sacrebleu", "rouge_score"):
        require_package(module, "scores of generated texts")


def _scores_of_rows(predicted, references, tokenize) -> Callable[[np.ndarray], dict[str, float]]:
    """Returns a function from the indices of texts to their scores; texts are compared once."""
    require_one_of("tokenize", tokenize, TOKENIZERS)
    require_references(predicted, references)
    require_text_metrics()
    from sacrebleu.metrics import BLEU, CHRF

    metrics = {"bleu": BLEU(tokenize=tokenize), "chrf": CHRF()}
    # The counts of n-grams of each text, whose sums give the score of a corpus: [n, counts].
    # They have no public name; sacrebleu's own bootstrap uses the same two methods (tried: 2.6).
    counts = {
        name: np.array(metric._extract_corpus_statistics(list(predicted), [list(references)]))
        for name, metric in metrics.items()
    }
    rouge = rouge_of_texts(
        predicted, references, _ROUGE_TYPES, use_stemmer=False, ideographs=tokenize == "zh"
    )  # [n, _ROUGE_TYPES]

    def scores(rows):
        results = {}
        for name, metric in metrics.items():
            total = counts[name][rows].sum(axis=0).tolist()  # [n, counts] -> [counts]
            results[name] = float(metric._compute_score_from_stats(total).score)
        means = rouge[rows].mean(axis=0)  # [n, _ROUGE_TYPES] -> [_ROUGE_TYPES]
        return {**results, **dict(zip(_ROUGE_TYPES, means.tolist()))}

    return scores
