"""Training of a classifier with a few texts of each class: the encoder on pairs, then the head."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.base.vectors import as_whole_number
from bert_tf.config import POOLING_MODES, SINGLE_LABEL
from bert_tf.errors import UserError, require, user_error
from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder
from bert_tf.tasks.text_classification.model import BertTextClassifier
from bert_tf.training.losses.score_losses import CosineRegressionLoss
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.schedules import WarmupLinearDecay

_WARMUP = 0.1


def few_shot_pairs(
    class_ids: Sequence[int], num_pairs: int = 20, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Draws pairs of texts of the same class, and as many of different classes.

    Each text begins `num_pairs` pairs of either kind, without those of the same class if its class
    has no other text.

    Args:
        class_ids: int `[n]`, of at least two classes.
        num_pairs: A positive integer.
        seed: The same seed draws the same pairs.

    Returns:
        int64 `[P, 2]`, numbers of texts; float32 `[P]`, 1 for the same class, 0 for different ones.

    Raises:
        UserError: If all texts are of one class, or `num_pairs` is no positive integer.

    Example:
        >>> pairs, targets = few_shot_pairs([0, 1], num_pairs=1)
        >>> pairs.tolist(), targets.tolist()
        ([[0, 1], [1, 0]], [0.0, 0.0])

    Reference: Tunstall et al. 2022 (arXiv 2209.11055), section 3.
    """
    num_pairs = as_whole_number(num_pairs, "num_pairs")
    class_ids = np.asarray(class_ids)
    if len(np.unique(class_ids)) < 2:
        raise user_error("`class_ids`", "have two classes", np.unique(class_ids).tolist())
    generator = np.random.default_rng(seed)
    numbers = np.arange(len(class_ids))
    pairs, targets = [], []
    for target in (1.0, 0.0):
        for number, class_id in enumerate(class_ids):
            others = numbers[(class_ids == class_id) == bool(target)]
            others = others[others != number]
            if len(others):
                drawn = generator.choice(others, num_pairs)
                pairs += [(number, other) for other in drawn.tolist()]
                targets += [target] * num_pairs
    return np.array(pairs, np.int64), np.array(targets, np.float32)


def fit_few_shot(
    classifier: BertTextClassifier,
    texts: Any,
    labels: Any,
    *,
    num_pairs: int = 20,
    epochs: int = 1,
    batch_size: int = 16,
    learning_rate: float = 2e-5,
    C: float = 1.0,
    seed: int = 0,
    verbose: int | str = "auto",
) -> keras.callbacks.History:
    """Trains a classifier with a few texts of each class, by the recipe of SetFit.

    The backbone, that of a sentence encoder, is trained on pairs of texts: the cosine of their
    vectors is to be 1 for the same class and 0 for others. Then the head becomes the logistic
    regression of the vectors.

    Args:
        classifier: A `BertTextClassifier` for one label per text, with `pooling` "mean", "max" or
            "mean_max". Open it from a sentence encoder, such as MiniLM.
        texts: n texts, not pairs.
        labels: Their labels, as for `fit`; every class of the classifier has a text.
        num_pairs: See `few_shot_pairs`.
        epochs, batch_size: The epochs of the training on pairs, and the pairs of a batch.
        learning_rate: It rises in the first tenth of the steps, then falls to 0.
        C: The inverse of the regularization of the logistic regression, as in scikit-learn.
        seed: The seed of the pairs. Their order and dropout depend on Keras's seed.
        verbose: See `fit`.

    Returns:
        The `keras.callbacks.History` of the encoder.

    Raises:
        UserError: If the classifier is of another kind, a class has no text, scikit-learn is not
            installed, or a number has another range.
        DataError: If a text or a label is missing or malformed.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained(
        ...     "minilm/", labels=["bad", "good"], pooling="mean"
        ... )
        >>> texts = ["a waste of time", "so dull", "wonderful", "I loved it"]
        >>> labels = ["bad", "bad", "good", "good"]
        >>> bert_tf.adapt.fit_few_shot(classifier, texts, labels, num_pairs=2, verbose=0)
        >>> classifier.classify("what a wonderful film").label
        'good'

    Reference: Tunstall et al. 2022 (arXiv 2209.11055); https://github.com/huggingface/setfit.
    """
    linear_model = require_package("sklearn.linear_model", "fit_few_shot()")
    _require_plain(classifier)
    require(C > 0, "must be positive", UserError, C=C)
    ids = classifier.targets(labels)
    columns = classifier.preprocessor.read_examples(texts)
    if len(columns) != 1 or columns.num_rows != len(ids):
        received = f"{columns.num_rows} examples of {len(columns)} texts, {len(ids)} labels"
        raise user_error("`texts`", "be single texts, as many as `labels`", received)
    missing = sorted(set(range(classifier.num_classes)) - set(ids.tolist()))
    if missing:
        names = [classifier.class_names[class_id] for class_id in missing]
        raise user_error("`labels`", "have each class of the classifier", f"none of {names}")
    pairs, targets = few_shot_pairs(ids, num_pairs, seed)
    encoder = _encoder_of(classifier, learning_rate)
    firsts, seconds = (columns[0][numbers].tolist() for numbers in pairs.T)
    history = encoder.fit(
        (firsts, seconds), targets, epochs=epochs, batch_size=batch_size, verbose=verbose
    )
    vectors = encoder.encode(columns[0].tolist(), batch_size=batch_size)
    regression = linear_model.LogisticRegression(C=C, max_iter=1000).fit(vectors, ids)
    kernel, bias = regression.coef_.T, regression.intercept_  # [H, C], [C]
    if classifier.num_classes == 2:  # scikit-learn has the logit of class 1 only
        kernel = np.concatenate([np.zeros_like(kernel), kernel], axis=1)
        bias = np.concatenate([np.zeros_like(bias), bias])
    classifier.classifier.set_weights([kernel, bias])
    return history


def _require_plain(classifier):
    """Raises `UserError` unless the logits are a dense layer on pooled vectors of single tokens."""
    if not isinstance(classifier, BertTextClassifier):
        raise user_error("`classifier`", "be a BertTextClassifier", type(classifier).__name__)
    if classifier.problem_type != SINGLE_LABEL:
        expected = f"be {SINGLE_LABEL!r}"
        raise user_error("`problem_type` of `classifier`", expected, repr(classifier.problem_type))
    modes = [mode for mode in POOLING_MODES if mode != "cls"]  # which uses the pooler
    if classifier.pooling not in modes or classifier.uses_pooler:
        expected = f"be one of {modes}, without the pooler, as in a sentence encoder"
        raise user_error("`pooling` of `classifier`", expected, repr(classifier.pooling))
    others = ("lstm", "scalar_mix", "language_model_head")
    found = [name for name in others if getattr(classifier, name) is not None]
    if found or classifier.both_orders:
        received = [*found, *["both_orders"] * classifier.both_orders]
        raise user_error("`classifier`", "have only a dense layer on pooled vectors", received)


def _encoder_of(classifier, learning_rate):
    """Returns a compiled sentence encoder with the backbone of a classifier."""
    encoder = BertSentenceEncoder(
        classifier.backbone,
        classifier.pooling,
        tokenizer=classifier.tokenizer,
        max_length=classifier.max_length,
        dtype=classifier.dtype_policy,
    )
    schedule = WarmupLinearDecay(learning_rate, warmup=_WARMUP)
    optimizer = AdamWeightDecay(schedule, bias_correction=True)
    encoder.compile(optimizer, objective=CosineRegressionLoss())
    return encoder
