"""Losses between a student and its teacher, float32 and one per row or token, padding included.

Glossary: `B` texts, `T` sequence length, `N` heads, `H` hidden size, `C` classes.
"""

import tensorflow as tf

# Smaller attention probabilities are replaced by this value, whose logarithm is finite.
SMALLEST_PROBABILITY = 1e-6


def soft_class_losses(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns T² · KL(teacher || student) of the class probabilities at temperature T.

    With the factor T², the size of the gradient does not depend on T.

    Args:
        student_logits: `[..., C]`.
        teacher_logits: `[..., C]`.
        temperature: T. Both logits are divided by it.

    Returns:
        float32 `[...]`.

    Reference: Hinton et al. 2015 (arXiv 1503.02531), section 2.
    """
    student = tf.nn.log_softmax(tf.cast(student_logits, tf.float32) / temperature)
    teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32) / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def soft_label_losses(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns T² · the binary cross-entropy with the teacher's probabilities at temperature T.

    Args:
        student_logits: `[..., C]`.
        teacher_logits: `[..., C]`.
        temperature: T. Both logits are divided by it.

    Returns:
        float32 `[...]`, the mean over the labels.
    """
    student = tf.cast(student_logits, tf.float32) / temperature
    teacher = tf.sigmoid(tf.cast(teacher_logits, tf.float32) / temperature)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=teacher, logits=student)
    return temperature**2 * tf.reduce_mean(losses, axis=-1)


def squared_differences(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns the mean squared difference of vectors: numbers, sentence vectors, hidden states.

    Args:
        student: `[..., H]`.
        teacher: `[..., H]`.

    Returns:
        float32 `[...]`.

    Reference: for hidden states Jiao et al. 2020 (TinyBERT, arXiv 1909.10351), section 3; for
    sentence vectors Reimers and Gurevych 2020 (arXiv 2004.09813).
    """
    student, teacher = tf.cast(student, tf.float32), tf.cast(teacher, tf.float32)
    return tf.reduce_mean(tf.math.squared_difference(student, teacher), axis=-1)


def attention_losses(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns KL(teacher || student) of the attention of each token, averaged over the heads.

    Heads of the same index are compared, or if the numbers of heads differ, the means over them.

    Args:
        student: Attention probabilities `[B, N, T, T]`.
        teacher: The same with any number of heads.

    Returns:
        float32 `[B, T]`, one loss per query.

    Reference: Wang et al. 2020 (MiniLM, arXiv 2002.10957), section 3.1, for the last block; Sun
    et al. 2020 (MobileBERT, arXiv 2004.02984) for every block; neither takes the mean over heads.
    """
    student, teacher = tf.cast(student, tf.float32), tf.cast(teacher, tf.float32)
    if student.shape[1] != teacher.shape[1]:
        # [B, N, T, T] -> [B, 1, T, T]
        student, teacher = (tf.reduce_mean(p, axis=1, keepdims=True) for p in (student, teacher))
    logarithms = [tf.math.log(tf.maximum(p, SMALLEST_PROBABILITY)) for p in (teacher, student)]
    ratio = logarithms[0] - logarithms[1]
    divergences = tf.reduce_sum(teacher * ratio, axis=-1)  # [B, N, T, T] -> [B, N, T]
    return tf.reduce_mean(divergences, axis=1)  # -> [B, T]
