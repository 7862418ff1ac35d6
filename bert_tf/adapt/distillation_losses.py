"""Losses between a student and its teacher, and checks that one can learn from the other.

Losses are float32 and one per row or token, padding included.

Glossary: `B` texts, `T` sequence length, `N` heads, `H` hidden size, `C` classes.
"""

import tensorflow as tf

from bert_tf import tasks
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.errors import UserError, user_error
from bert_tf.models.task_spec import CLASSES

# Smaller attention probabilities are replaced by this value, whose logarithm is finite.
SMALLEST_PROBABILITY = 1e-6


def soft_class_losses(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns T² · KL(teacher || student) of the class probabilities at temperature T, `[...]`.

    Logits are `[..., C]`. With the factor T², the size of the gradient does not depend on T.

    Reference: Hinton et al. 2015 (arXiv 1503.02531), section 2.
    """
    student = tf.nn.log_softmax(tf.cast(student_logits, tf.float32) / temperature)
    teacher = tf.nn.log_softmax(tf.cast(teacher_logits, tf.float32) / temperature)
    return temperature**2 * tf.reduce_sum(tf.exp(teacher) * (teacher - student), axis=-1)


def soft_label_losses(
    student_logits: tf.Tensor, teacher_logits: tf.Tensor, temperature: float
) -> tf.Tensor:
    """Returns T² · the binary cross-entropy with the teacher's probabilities at temperature T.

    It is the mean over the labels: logits `[..., C]` -> `[...]`.
    """
    student = tf.cast(student_logits, tf.float32) / temperature
    teacher = tf.sigmoid(tf.cast(teacher_logits, tf.float32) / temperature)
    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=teacher, logits=student)
    return temperature**2 * tf.reduce_mean(losses, axis=-1)


def squared_differences(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns the mean squared differences `[...]` of numbers, vectors or hidden states `[..., H]`.

    Reference: for hidden states Jiao et al. 2020 (TinyBERT, arXiv 1909.10351), section 3; for
    sentence vectors Reimers and Gurevych 2020 (arXiv 2004.09813).
    """
    student, teacher = tf.cast(student, tf.float32), tf.cast(teacher, tf.float32)
    return tf.reduce_mean(tf.math.squared_difference(student, teacher), axis=-1)


def attention_losses(student: tf.Tensor, teacher: tf.Tensor) -> tf.Tensor:
    """Returns KL(teacher || student) of the attention of each token, averaged over the heads.

    Probabilities `[B, N, T, T]` become one loss per query, `[B, T]`. Heads of the same index are
    compared, or if the numbers of heads differ, the means over them.

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


_FALSE_OPTIONS = {
    "use_crf": "a CRF gives no distribution over the tags of a word",
    "both_orders": "in distillation, pairs are computed in one order",
}
# The options of a tokenizer that change the ids of a text.
_TOKENIZER_SETTINGS = ("lowercase", "split_on_cjk", "number_token", "segmenter")


def check_pair(student, teacher) -> None:
    """Checks that a student can learn from a teacher, both task models.

    Raises:
        UserError: If they are of different tasks or one that cannot be distilled, they share a
            backbone, they differ in problem type, labels, vector size, vocabulary or tokenizer, the
            teacher takes shorter texts, one has a CRF or adds the vectors of pairs in
            both orders, or the student cannot be trained.
    """
    spec = tasks.spec_of(type(student))
    if spec is None or spec.distilled_as is None or tasks.spec_of(type(teacher)) is not spec:
        kinds = [spec.model for spec in tasks.specs() if spec.distilled_as]
        received = f"student={type(student).__name__}, teacher={type(teacher).__name__}"
        raise user_error("`student` and `teacher`", f"be of one class among {kinds}", received)
    if student.backbone is teacher.backbone:
        received = "the teacher's. `student_from_teacher` makes a student."
        raise user_error("`student`", "have a backbone of its own", received)
    student.backbone.require_kernels("trained")
    for name, reason in _FALSE_OPTIONS.items():
        own, others = getattr(student, name, False), getattr(teacher, name, False)
        if own or others:
            received = f"student.{name}={own}, teacher.{name}={others}"
            raise user_error(f"`{name}`", f"be False: {reason}", received)
    for name in ("problem_type", "labels", "num_classes", "vector_size"):
        ours, theirs = getattr(student, name, None), getattr(teacher, name, None)
        unnamed = name == "labels" and None in (ours, theirs)
        if ours != theirs and not unnamed:
            expected = f"be the teacher's, in the same order: {theirs}"
            raise user_error(f"The student's `{name}`", expected, ours)
    _check_tokens(student, teacher)
    limit = teacher.backbone.config.max_position_embeddings
    if student.max_sequence_length > limit:
        raise UserError(
            f"The teacher takes {limit} tokens, so the student's `max_length` must be at most "
            f"that. Received: {student.max_sequence_length}"
        )


def _check_tokens(student, teacher):
    ours, theirs = student.tokenizer, teacher.tokenizer
    have_tokenizers = ours is not None and theirs is not None
    pairs = zip(ours.vocabulary, theirs.vocabulary) if have_tokenizers else ()
    differing = [id for id, (mine, other) in enumerate(pairs) if mine != other]
    sizes = [model.backbone.config.vocab_size for model in (student, teacher)]
    if differing or sizes[0] != sizes[1]:
        where = f", the first other one at id {differing[0]}" if differing else ""
        expected = f"be the teacher's, of {sizes[1]} entries"
        raise user_error("The student's vocabulary", expected, f"{sizes[0]} entries{where}")
    for name in _TOKENIZER_SETTINGS if have_tokenizers else ():
        if getattr(ours, name) != getattr(theirs, name):
            expected = f"have the teacher's {name}={getattr(theirs, name)!r}"
            raise user_error("The student's tokenizer", expected, repr(getattr(ours, name)))


def soft_losses(student):
    """Returns the loss, float32 `[...]`, as a function of both outputs and the temperature."""
    problem_type = getattr(student, "problem_type", None)
    if tasks.spec_of(type(student)).distilled_as != CLASSES or problem_type == REGRESSION:
        return lambda ours, theirs, temperature: squared_differences(ours, theirs)
    return soft_label_losses if problem_type == MULTI_LABEL else soft_class_losses
