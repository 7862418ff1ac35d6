"""Cross-entropy over the scores of documents.

Glossary: `B` queries, `M` documents that each is compared with.
"""

import tensorflow as tf


def document_cross_entropy(numbers: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the cross-entropy `[B]` of finding the documents `[B]` by scores `[B, M]`."""
    # Not the fused cross-entropy, which fails for the empty last batch of a replica.
    return tf.reduce_logsumexp(scores, axis=-1) - score_of(numbers, scores)


def score_of(numbers: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """Returns the scores `[B]` of the documents `[B]`, of scores `[B, M]`."""
    return tf.gather(scores, tf.cast(tf.reshape(numbers, [-1]), tf.int32), batch_dims=1)
