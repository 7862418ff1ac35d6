"""Checks that one model can learn from another: the same task, vocabulary and labels."""

from bert_tf import tasks
from bert_tf.compression.distillation_losses import (
    soft_class_losses,
    soft_label_losses,
    squared_differences,
)
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.errors import UserError
from bert_tf.models.task_spec import CLASSES

# The options of a tokenizer that change the ids of a text.
_TOKENIZER_SETTINGS = ("lowercase", "split_on_cjk", "number_token")


def check_pair(student, teacher) -> None:
    """Checks that a student can learn from a teacher.

    Args:
        student: A task model.
        teacher: A task model.

    Raises:
        UserError: If they are not models of the same task, the task cannot be distilled, they share
            a backbone, they differ in problem type, labels, vector size, vocabulary or tokenizer
            options, the teacher takes shorter texts than the student, one has a CRF, or the student
            cannot be trained.
    """
    spec = tasks.spec_of(type(student))
    if spec is None or spec.distilled_as is None or tasks.spec_of(type(teacher)) is not spec:
        kinds = [spec.model for spec in tasks.specs() if spec.distilled_as]
        raise UserError(
            f"`student` and `teacher` must be of one class among {kinds}. "
            f"Received: student={type(student).__name__}, teacher={type(teacher).__name__}"
        )
    if student.backbone is teacher.backbone:
        raise UserError(
            "`student` must have a backbone of its own. Received: the teacher's. "
            "`student_from_teacher` makes a student."
        )
    student.backbone.require_kernels("trained")
    if getattr(student, "use_crf", False) or getattr(teacher, "use_crf", False):
        raise UserError(
            "`use_crf` must be False: a CRF gives no distribution over the tags of a word. "
            f"Received: student.use_crf={student.use_crf}, "
            f"teacher.use_crf={teacher.use_crf}"
        )
    for name in ("problem_type", "labels", "num_classes", "vector_size"):
        ours, theirs = getattr(student, name, None), getattr(teacher, name, None)
        unnamed = name == "labels" and None in (ours, theirs)
        if ours != theirs and not unnamed:
            raise UserError(
                f"The student's `{name}` must be the teacher's, in the same order: {theirs}. "
                f"Received: {ours}"
            )
    _check_tokens(student, teacher)
    if student.longest > teacher.backbone.config.max_position_embeddings:
        raise UserError(
            f"The teacher takes {teacher.backbone.config.max_position_embeddings} tokens, so the "
            f"student's `max_length` must be at most that. Received: {student.longest}"
        )


def _check_tokens(student, teacher):
    ours, theirs = student.tokenizer, teacher.tokenizer
    if ours is None or theirs is None:
        ours, theirs = student.backbone.config.vocab_size, teacher.backbone.config.vocab_size
        if ours != theirs:
            raise UserError(
                f"The student's vocabulary must be the teacher's, of {theirs} entries. "
                f"Received: {ours} entries"
            )
        return
    if ours.vocabulary != theirs.vocabulary:
        differing = [
            id
            for id, pair in enumerate(zip(ours.vocabulary, theirs.vocabulary))
            if pair[0] != pair[1]
        ]
        where = f", the first other one at id {differing[0]}" if differing else ""
        raise UserError(
            f"The student's vocabulary must be the teacher's, of {theirs.vocab_size} entries. "
            f"Received: {ours.vocab_size} entries{where}"
        )
    for name in _TOKENIZER_SETTINGS:
        if getattr(ours, name) != getattr(theirs, name):
            raise UserError(
                f"The student's tokenizer must have the teacher's {name}="
                f"{getattr(theirs, name)!r}. Received: {getattr(ours, name)!r}"
            )


def soft_losses(student):
    """Returns the loss between the outputs of a student and its teacher.

    It is a function of the outputs `[..., C]` of both and of the temperature, and returns float32
    `[...]`.
    """
    problem_type = getattr(student, "problem_type", None)
    if tasks.spec_of(type(student)).distilled_as != CLASSES or problem_type == REGRESSION:
        return lambda ours, theirs, temperature: squared_differences(ours, theirs)
    return soft_label_losses if problem_type == MULTI_LABEL else soft_class_losses
