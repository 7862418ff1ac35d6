"""Checks that one model can learn from another: the same task, vocabulary and labels."""

from bert_tf import tasks
from bert_tf.adapt.distillation_losses import (
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
        UserError: If they are of different tasks or one that cannot be distilled, they share a
            backbone, they differ in problem type, labels, vector size, vocabulary or tokenizer, the
            teacher takes shorter texts, one has a CRF or adds the vectors of pairs in
            both orders, or the student cannot be trained.
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
            f"Received: student.use_crf={student.use_crf}, teacher.use_crf={teacher.use_crf}"
        )
    if getattr(student, "both_orders", False) or getattr(teacher, "both_orders", False):
        raise UserError(
            "`both_orders` must be False: in distillation, pairs are computed in one order. "
            f"Received: student.both_orders={student.both_orders}, "
            f"teacher.both_orders={teacher.both_orders}"
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
        raise UserError(
            f"The student's vocabulary must be the teacher's, of {sizes[1]} entries. "
            f"Received: {sizes[0]} entries{where}"
        )
    for name in _TOKENIZER_SETTINGS if have_tokenizers else ():
        if getattr(ours, name) != getattr(theirs, name):
            raise UserError(
                f"The student's tokenizer must have the teacher's {name}="
                f"{getattr(theirs, name)!r}. Received: {getattr(ours, name)!r}"
            )


def soft_losses(student):
    """Returns the loss, float32 `[...]`, as a function of both outputs and the temperature."""
    problem_type = getattr(student, "problem_type", None)
    if tasks.spec_of(type(student)).distilled_as != CLASSES or problem_type == REGRESSION:
        return lambda ours, theirs, temperature: squared_differences(ours, theirs)
    return soft_label_losses if problem_type == MULTI_LABEL else soft_class_losses
