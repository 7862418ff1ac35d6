"""Reference values for the results of an evaluation: intervals and frequencies of words."""

import math

import numpy as np
import tensorflow as tf

CONFIDENCE_Z = 1.959964  # 95 % of a normal distribution, two-sided


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Returns the 95 % confidence interval of a share that was observed in `count` trials.

    Reference: Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not count:
        return 0.0, 1.0
    z = CONFIDENCE_Z
    center = share + z * z / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return (center - spread) / scale, (center + spread) / scale


def unigram_entropy(counts: np.ndarray) -> float:
    """Returns the entropy of the distribution of the counts, in nats.

    It is the smallest loss of a predictor that knows only how often each word occurs.
    """
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(-(shares * np.log(shares)).sum())


def label_statistics(batches: tf.data.Dataset, results: dict[str, float]) -> dict[str, float]:
    """Computes statistics of the labels of an evaluation.

    Args:
        batches: Pairs (features, labels), as `pretraining_records` returns them.
        results: The result of the model's `evaluate` for these batches.

    Returns:
        `masked_lm_examples`, the number of words to predict; `masked_lm_unigram_entropy`, the loss
        of predicting them by frequency; and, if `results` has `next_sentence_accuracy`,
        `next_sentence_examples` and the 95 % interval, `next_sentence_accuracy_low` and `_high`.
    """
    counts = np.zeros(0, np.int64)
    sentences = 0
    for _, labels in batches:
        words = labels["masked_ids"].numpy()[labels["masked_weights"].numpy() > 0]
        batch = np.bincount(words, minlength=len(counts))
        batch[: len(counts)] += counts
        counts = batch
        # Packed rows have unused slots.
        used = labels.get("next_sentence_weights", tf.ones_like(labels["next_sentence_labels"]))
        sentences += int(tf.math.count_nonzero(used))
    statistics = {
        "masked_lm_examples": int(counts.sum()),
        "masked_lm_unigram_entropy": unigram_entropy(counts),
    }
    if "next_sentence_accuracy" in results:
        statistics["next_sentence_examples"] = sentences
        interval = wilson_interval(float(results["next_sentence_accuracy"]), sentences)
        for end, value in zip(("low", "high"), interval):
            statistics[f"next_sentence_accuracy_{end}"] = value
    return statistics
