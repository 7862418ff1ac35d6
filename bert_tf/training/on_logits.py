"""Keras's losses and metrics for models that return logits: by default, they take probabilities."""

import inspect
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import UserError, require, user_error

# The functions and the classes that Keras finds by the same names.
_CROSSENTROPIES = {
    keras.losses.binary_crossentropy: keras.losses.BinaryCrossentropy,
    keras.losses.binary_focal_crossentropy: keras.losses.BinaryFocalCrossentropy,
    keras.losses.categorical_crossentropy: keras.losses.CategoricalCrossentropy,
    keras.losses.categorical_focal_crossentropy: keras.losses.CategoricalFocalCrossentropy,
    keras.losses.sparse_categorical_crossentropy: keras.losses.SparseCategoricalCrossentropy,
}
_LOSSES_OF_PROBABILITIES = {
    keras.losses.kl_divergence: keras.losses.KLDivergence,
    keras.losses.categorical_generalized_cross_entropy: (
        keras.losses.CategoricalGeneralizedCrossEntropy
    ),
    keras.losses.dice: keras.losses.Dice,
    keras.losses.tversky: keras.losses.Tversky,
}
_RULE = "`loss` must take logits, which the model returns, not probabilities. Received: loss="


def loss_on_logits(loss: Any) -> Any:
    """Returns the `loss` of `compile` for a model that returns logits.

    A name, function or class of Keras becomes the same loss with `from_logits=True`.

    Args:
        loss: What `keras.Model.compile` takes.

    Raises:
        UserError: If it is a loss of probabilities.

    Example:
        >>> loss_on_logits("sparse_categorical_crossentropy").from_logits
        True
    """
    return keras.tree.map_structure(_loss_on_logits, loss)


def _loss_on_logits(loss):
    rule = "must say which cross-entropy it is"
    fix = "Pass for example 'sparse_categorical_crossentropy'."
    is_valid = not isinstance(loss, str) or loss.lower() not in ("crossentropy", "ce")
    require(is_valid, rule, UserError, fix, loss=loss)
    found = keras.losses.get(loss)
    kind = _CROSSENTROPIES.get(found, type(found))
    if kind in _CROSSENTROPIES.values():
        if not isinstance(loss, keras.losses.Loss):
            return kind(from_logits=True)
        if not loss.from_logits:
            name = kind.__name__
            raise UserError(
                f"{_RULE}keras.losses.{name}(from_logits=False). Pass "
                f"`keras.losses.{name}(from_logits=True)`."
            )
    kind = _LOSSES_OF_PROBABILITIES.get(found, kind)
    if kind in _LOSSES_OF_PROBABILITIES.values():
        raise UserError(
            f"{_RULE}keras.losses.{kind.__name__}. Pass for example "
            "`keras.losses.CategoricalCrossentropy(from_logits=True)`."
        )
    return loss


_METRICS_OF_PROBABILITIES = (
    keras.metrics.Precision,
    keras.metrics.Recall,
    keras.metrics.TruePositives,
    keras.metrics.TrueNegatives,
    keras.metrics.FalsePositives,
    keras.metrics.FalseNegatives,
    keras.metrics.SensitivityAtSpecificity,
    keras.metrics.SpecificityAtSensitivity,
    keras.metrics.PrecisionAtRecall,
    keras.metrics.RecallAtPrecision,
    keras.metrics.FBetaScore,
    keras.metrics.BinaryIoU,
    keras.metrics.KLDivergence,
)
_WAY_OUT = (
    "Scores of whole data, such as F1 and AUC, are in `bert_tf.training.EpochScores(x, y)`, a "
    "callback of `fit`."
)


def metrics_on_logits(
    metrics: Any, problem_type: str | None = None, example: tuple | None = None
) -> Any:
    """Returns the `metrics` of `compile` for a model that returns logits.

    A name of Keras becomes the metric of logits.

    Args:
        metrics: What `keras.Model.compile` takes.
        problem_type: See `BertTextClassifier`; None if it is not known.
        example: Labels and logits of some examples, with which every metric is tried; or None.

    Raises:
        UserError: If a metric is one of probabilities, or fails for the example.

    Example:
        >>> metrics_on_logits(["binary_accuracy"], "multi_label_classification")[0].threshold
        0.0
    """
    return keras.tree.map_structure(
        lambda one: _metric_on_logits(one, problem_type, example), metrics
    )


def _metric_on_logits(metric, problem_type, example):
    if metric is None:
        return None
    if isinstance(metric, str) and metric.lower() in ("accuracy", "acc"):
        if problem_type == REGRESSION:
            expected = "be of numbers for a regression"
            raise user_error("`metrics`", expected, f"{metric!r}. Pass for example 'mae'.")
        is_multi_label = problem_type == MULTI_LABEL  # else Keras takes the largest output
        return keras.metrics.BinaryAccuracy(metric, threshold=0.0) if is_multi_label else metric
    found, kept = keras.metrics.get(metric), metric
    if isinstance(metric, str):
        options = {"threshold": 0.0} if isinstance(found, keras.metrics.BinaryAccuracy) else {}
        if "from_logits" in inspect.signature(type(found)).parameters:
            options = {"from_logits": True}
        if options:
            found = kept = type(found)(name=metric, **options)
    if problem_type == SINGLE_LABEL and isinstance(found, keras.metrics.BinaryAccuracy):
        raise UserError(
            "`metrics` must be of class ids. Received: BinaryAccuracy, which compares them with "
            f"every logit. Pass 'accuracy'. {_WAY_OUT}"
        )
    if problem_type != REGRESSION:
        _require_logits(found)
    if example is not None:
        _try(found, metric, example)
    return kept


def _require_logits(metric):
    """Raises `UserError` for a metric of probabilities."""
    name = f"keras.metrics.{type(metric).__name__}"
    settings = metric.get_config() if isinstance(metric, keras.metrics.Metric) else {}
    way_out = _WAY_OUT
    if settings.get("from_logits") is False:
        name, way_out = f"{name}(from_logits=False)", f"Pass `{name}(from_logits=True)`."
    elif isinstance(metric, keras.metrics.BinaryAccuracy) and settings["threshold"] == 0.5:
        name, way_out = f"{name}(threshold=0.5)", f"Pass `{name}(threshold=0.0)`."
    elif not isinstance(metric, _METRICS_OF_PROBABILITIES):
        return
    expected = "take logits, which the model returns, not probabilities"
    raise user_error("`metrics`", expected, f"{name}. {way_out}")


def _try(metric, given, example):
    """Raises `UserError` if a metric fails for an example; in a step it would fail in the graph."""
    if not isinstance(metric, keras.metrics.Metric):
        metric = keras.metrics.MeanMetricWrapper(metric)
    labels, logits = example
    try:
        metric.update_state(tf.constant(labels), tf.constant(logits, tf.float32))
        metric.result()
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"`metrics` must take the labels {list(np.shape(labels))} and the logits "
            f"{list(np.shape(logits))} of {len(labels)} examples. Received: {given!r}, which fails "
            f"for them: {str(error).strip().splitlines()[0]} {_WAY_OUT}"
        ) from None
    metric.reset_state()
