"""Scores of generated texts against references: ROUGE by rouge-score, the others by sacrebleu.

A text has one reference, a string, or several, a list of strings; texts may have different numbers.
BLEU, chrF, chrF++ and TER treat several references as sacrebleu does; ROUGE is that of the
reference with the largest F.

Glossary: `n` texts.
"""

import itertools
import re
from collections.abc import Callable, Collection, Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, require_one_of, user_error
from bert_tf.inputs.long_texts import split_sentences

ROUGE_TYPES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
References = Sequence[str | Sequence[str]]
_UNIT = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")


def rouge_scores(
    predicted: Sequence[str],
    references: References,
    use_stemmer: bool = True,
    ideographs: bool = False,
) -> dict[str, float]:
    """Computes the mean ROUGE F of texts.

    Args:
        predicted: The `n` texts, for example summaries.
        references: The reference of each text, or a list of its references.
        use_stemmer: Whether words are compared by their stems (English), as papers report it.
        ideographs: Whether a unit is an ideograph or a word of any letters, never a stem;
            otherwise it is a word of the letters a-z and digits, as in rouge-score.

    Returns:
        The means of `rouge1`, `rouge2`, `rougeL` and `rougeLsum`, from 0 to 100. `rougeLsum`
        compares sentence by sentence.

    Raises:
        DataError: If there are no texts, not as many entries in `references`, or a text has none.
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
    references: References,
    types: Sequence[str] = ROUGE_TYPES,
    use_stemmer: bool = True,
    ideographs: bool = False,
) -> np.ndarray:
    """Computes the ROUGE F of each text, from 0 to 100, float64 `[n, types]`.

    `types` are some of `ROUGE_TYPES`. The other arguments and the errors are those of
    `rouge_scores`.
    """
    references = reference_lists(predicted, references)
    rouge_scorer = require_package("rouge_score.rouge_scorer", "ROUGE")
    tokenizer = _IdeographTokenizer() if ideographs else None
    scorer = rouge_scorer.RougeScorer(list(types), use_stemmer=use_stemmer, tokenizer=tokenizer)
    found = (
        scorer.score_multi([_sentence_lines(one) for one in several], _sentence_lines(text))
        for text, several in zip(predicted, references)
    )
    return 100.0 * np.array([[scores[kind].fmeasure for kind in types] for scores in found])


def reference_lists(predicted: Sequence[str], references: References) -> list[list[str]]:
    """Returns the list of references of each text.

    Raises `DataError` if there is no text, a text is not a string, or not each text has a
    reference, a string, or several.
    """
    if not len(predicted) or len(predicted) != len(references):
        expected = "have one entry for each of `predicted`, at least one"
        received = f"len(references)={len(references)}, len(predicted)={len(predicted)}"
        raise user_error("`references`", expected, received, DataError)
    lists = [[entry] if isinstance(entry, str) else entry for entry in references]
    for row, (text, several) in enumerate(zip(predicted, lists)):
        if not isinstance(text, str):
            expected = "be strings, one for each text"
            raise user_error("`predicted`", expected, f"{text!r} in row {row}", DataError)
        is_list = isinstance(several, (list, tuple)) and len(several) > 0
        if not is_list or not all(isinstance(one, str) for one in several):
            expected = "be a string, or a list of one or more strings, for each text"
            received = f"{references[row]!r} in row {row}"
            raise user_error("`references`", expected, received, DataError)
    return [list(several) for several in lists]


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
SCORES = ("bleu", "chrf", "chrf++", "ter", *_ROUGE_TYPES)


def generated_text_scores(
    predicted: Sequence[str],
    references: References,
    tokenize: str = "13a",
    names: Collection[str] = SCORES,
) -> dict[str, float]:
    """Computes BLEU, chrF, chrF++ and TER of a corpus, and the means of ROUGE-1, 2 and L.

    Args:
        predicted: The `n` generated texts.
        references: The reference of each text, or a list of its references.
        tokenize: "13a", "intl" or "zh": how BLEU finds words. With "zh", a unit of ROUGE and TER
            is an ideograph or a word; otherwise a unit of ROUGE is a word of the letters a-z and
            digits, as in rouge-score.
        names: The scores to compute. TER takes long for long texts.

    Returns:
        `bleu`, `chrf`, `chrf++`, `rouge1`, `rouge2` and `rougeL` (F1, without stemming), from 0 to
        100, and `ter`: edits per 100 words of a reference, of which fewer are better.

    Raises:
        DataError: If there are no texts, not as many entries in `references`, or a text has none.
        UserError: If sacrebleu or rouge-score is missing, or `tokenize` or a name is unknown.

    Example:
        >>> from bert_tf.training.evaluation.generated_text import generated_text_scores
        >>> scores = generated_text_scores(["the cat sat"], ["the cat sat"])  # doctest: +SKIP
        >>> round(scores["chrf"], 6)  # doctest: +SKIP
        100.0
        >>> several = [["the cat sat", "a cat was sitting"]]
        >>> scores = generated_text_scores(["a cat sat"], several)  # doctest: +SKIP
        >>> round(scores["ter"], 1)  # doctest: +SKIP
        28.6

    Reference: Papineni et al. 2002 (BLEU), Popović 2015 (chrF) and 2017 (chrF++), Snover et al.
        2006 (TER), Lin 2004 (ROUGE), Post 2018 (sacrebleu).
    """
    scores = generated_text_rows(predicted, references, tokenize, names)
    return scores(np.arange(len(predicted)))


def require_text_metrics() -> None:
    """Raises `UserError` if sacrebleu or rouge-score is missing. Tools call it before any work."""
    for module in ("sacrebleu", "rouge_score"):
        require_package(module, "scores of generated texts")


def generated_text_rows(
    predicted: Sequence[str],
    references: References,
    tokenize: str = "13a",
    names: Collection[str] = SCORES,
) -> Callable[[np.ndarray], dict[str, float]]:
    """Returns a function from the indices of texts to their scores; texts are compared once.

    The arguments and errors are those of `generated_text_scores`.
    """
    require_one_of("tokenize", tokenize, TOKENIZERS)
    for name in names:
        require_one_of("names", name, SCORES)
    references = reference_lists(predicted, references)
    require_text_metrics()
    from sacrebleu.metrics import BLEU, CHRF, TER

    is_chinese = tokenize == "zh"
    metrics = {
        "bleu": BLEU(tokenize=tokenize),
        "chrf": CHRF(),
        "chrf++": CHRF(word_order=2),
        "ter": TER(normalized=is_chinese, asian_support=is_chinese),
    }
    metrics = {name: metric for name, metric in metrics.items() if name in names}
    # sacrebleu reads the first references of all texts, then the second; None is for no more.
    columns = list(itertools.zip_longest(*references))
    # The counts of n-grams or edits of each text, whose sums give the score of a corpus:
    # [n, counts]. They have no public name; sacrebleu's own tests of significance use the same two
    # methods (tried: 2.6).
    counts = {
        name: np.array(metric._extract_corpus_statistics(list(predicted), columns))
        for name, metric in metrics.items()
    }
    types = [name for name in _ROUGE_TYPES if name in names]
    rouge = np.zeros([len(predicted), 0])
    if types:
        options = {"use_stemmer": False, "ideographs": is_chinese}
        rouge = rouge_of_texts(predicted, references, types, **options)  # [n, types]

    def scores(rows):
        results = {}
        for name, metric in metrics.items():
            total = counts[name][rows].sum(axis=0).tolist()  # [n, counts] -> [counts]
            results[name] = float(metric._compute_score_from_stats(total).score)
        means = rouge[rows].mean(axis=0)  # [n, types] -> [types]
        return {**results, **dict(zip(types, means.tolist()))}

    return scores
