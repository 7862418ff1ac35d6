"""What the results of an evaluation are to be read against: chance, and the words' frequencies."""

import math

import numpy as np
import tensorflow as tf

CONFIDENCE_Z = 1.959964  # 95 % of a normal distribution, two-sided


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """The 95 % confidence interval of a share that was seen in `count` independent trials.

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
    """Entropy, in nats, of the distribution that the counts show.

    It is the loss of the best predictor that knows how often each word occurs among the very words
    to predict and sees nothing around them, so no predictor by frequency alone has a smaller loss.
    """
    shares = counts[counts > 0] / max(1, counts.sum())
    return float(-(shares * np.log(shares)).sum())


def label_statistics(batches: tf.data.Dataset, results: dict[str, float]) -> dict[str, float]:
    """Reads the labels of pre-training batches once more.

    Args:
        batches: Pairs (features, labels) as `pretraining_records` gives them.
        results: What the model's `evaluate` returned for them.

    Returns:
        `masked_lm_examples`: the number of words to predict; `masked_lm_unigram_entropy`: the loss
        of predicting them by frequency alone, see `unigram_entropy`; and, if `results` has a
        `next_sentence_accuracy`, `next_sentence_examples` and the ends of its 95 % interval,
        `next_sentence_accuracy_low` and `_high`.
    """
    counts = np.zeros(0, np.int64)
    sentences = 0
    for _, labels in batches:
        words = labels["masked_ids"].numpy()[labels["masked_weights"].numpy() > 0]
        batch = np.bincount(words, minlength=len(counts))
        batch[: len(counts)] += counts
        counts = batch
        if "next_sentence_weights" in labels:  # packed rows have unused places
            sentences += int(tf.math.count_nonzero(labels["next_sentence_weights"]))
        else:
            sentences += labels["next_sentence_labels"].shape[0]
    statistics = {
        "masked_lm_examples": int(counts.sum()),
        "masked_lm_unigram_entropy": unigram_entropy(counts),
    }
    if "next_sentence_accuracy" in results:
        low, high = wilson_interval(float(results["next_sentence_accuracy"]), sentences)
        statistics |= {
            "next_sentence_examples": sentences,
            "next_sentence_accuracy_low": low,
            "next_sentence_accuracy_high": high,
        }
    return statistics
