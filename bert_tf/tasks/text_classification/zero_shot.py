"""Classes that a classifier was not trained for, by a classifier of natural language inference."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.config import MULTI_LABEL, SINGLE_LABEL
from bert_tf.errors import UserError, user_error
from bert_tf.tasks.text_classification.preprocessor import (
    Classification,
    TextClassificationPreprocessor,
)
from bert_tf.training.evaluation.probabilities import softmax

LABEL_MARK = "{}"  # where a template has the label, as in Hugging Face
_ENTAILMENT = "entail"  # the beginning of the label's name


def zero_shot(
    classifier: Any,
    texts: Any,
    candidate_labels: Sequence[str],
    template: str,
    multi_label: bool,
    *arguments: Any,
    **options: Any,
) -> Classification | list[Classification]:
    """Returns which of the labels fit texts; see `BertTextClassifier.zero_shot`.

    Further arguments are those of `predict`.
    """
    preprocessor = classifier.preprocessor
    classes = inference_classes(preprocessor)
    hypotheses = hypotheses_of(candidate_labels, template)
    columns = preprocessor.read_examples(texts)
    if len(columns) != 1:
        raise user_error("`texts`", "be single texts", f"examples of {len(columns)} texts")
    firsts = np.repeat(columns[0], len(hypotheses)).tolist()
    pairs = firsts, hypotheses * columns.num_rows
    logits = classifier.predict(pairs, *arguments, **options)
    logits = logits.reshape(-1, len(hypotheses), logits.shape[-1])
    probabilities = zero_shot_probabilities(logits, classes, multi_label)
    kind = MULTI_LABEL if multi_label else SINGLE_LABEL
    decided = TextClassificationPreprocessor(labels=list(candidate_labels), problem_type=kind)
    answers = decided.decided(probabilities, None)
    return answers[0] if columns.is_single else answers


def hypotheses_of(candidate_labels: Sequence[str], template: str) -> list[str]:
    """Returns a sentence for each label: the template with the label for `{}`.

    Raises:
        UserError: If there are no labels, one is no text or is there twice, or the template does
            not have one `{}`.
    """
    labels = list(candidate_labels)
    is_text = not isinstance(candidate_labels, str) and all(isinstance(x, str) for x in labels)
    if not is_text or not labels or len(set(labels)) < len(labels):
        expected = "be a list of different texts"
        raise user_error("`candidate_labels`", expected, repr(candidate_labels))
    if not isinstance(template, str) or template.count(LABEL_MARK) != 1:
        expected = "have one {} for the label"
        raise user_error("`hypothesis_template`", expected, repr(template))
    return [template.replace(LABEL_MARK, label) for label in labels]


def inference_classes(preprocessor: TextClassificationPreprocessor) -> tuple[int, int]:
    """Returns the class of entailment, and the class that says that a hypothesis is wrong.

    The second is the first class, or the last if entailment is the first, as in Hugging Face.

    Raises:
        UserError: If the classifier has not one label that begins with "entail".
    """
    if not is_of_inference(preprocessor):
        raise UserError(
            "The classifier must be trained on natural language inference, with a label that "
            "begins with 'entail', such as run_classifier --task_name=mnli. "
            f"Received: {preprocessor.names}"
        )
    (entailment,) = _entailments(preprocessor)
    return entailment, len(preprocessor.names) - 1 if entailment == 0 else 0


def is_of_inference(preprocessor: TextClassificationPreprocessor) -> bool:
    """Returns whether a classifier has one label for entailment, and others."""
    is_one = preprocessor.problem_type == SINGLE_LABEL and len(_entailments(preprocessor)) == 1
    return is_one and len(preprocessor.names) > 1


def _entailments(preprocessor):
    names = map(str.lower, preprocessor.names)
    return [i for i, name in enumerate(names) if name.startswith(_ENTAILMENT)]


def zero_shot_probabilities(
    logits: np.ndarray, classes: tuple[int, int], multi_label: bool
) -> np.ndarray:
    """Returns the probabilities of the labels of each text, `[n, labels, classes] -> [n, labels]`.

    Args:
        logits: What the classifier computes for each text with the hypothesis of each label.
        classes: What `inference_classes` returned.
        multi_label: Whether each label is decided by itself: its entailment against the other
            class. Else the softmax of the labels' entailment, which sums to 1.
    """
    entailment, wrong = classes
    if multi_label:
        return softmax(logits[..., [wrong, entailment]])[..., 1]
    return softmax(logits[..., entailment])
