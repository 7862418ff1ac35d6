r"""Distills a fine-tuned text classifier or regressor, the teacher, into a smaller student.

    bert-tf distill --task_name=sst-2 --data_dir=SST-2 --teacher=out/model \
      --num_hidden_layers=4 --output_dir=small

The student starts as a copy of some of the teacher's blocks (--num_hidden_layers,
--student_layers) or from another checkpoint with the same vocabulary (--student). The tasks and
files are those of bert-tf run_classifier.

With w for --logits_weight, the loss is the sum of (1 - w) times the loss on the labels, w times
the distance from the teacher's probabilities, and the distances of hidden states and attention,
weighted by their flags. With --logits_weight=1 the labels are not used, and --unlabeled_file may
add texts without labels.

The tool writes to --output_dir:

    model/              the student: a Hugging Face directory with tokenizer and labels
    checkpoints/        from which the same command resumes a killed run, but not with --keep_best
    eval_results.txt    the scores on the dev file of the teacher, and of the student before and
                        after the training

It also prints the scores as a table, with the number of parameters, the size of the weights and
the time per text (from tokens to logits).
"""

import os

from bert_tf.errors import UserError
from bert_tf.tools.common import (
    fine_tuning,
    fine_tuning_flags,
    result_files,
    task_flags,
    tool,
    workers,
)
from bert_tf.tools.common.checks import flag_error, options_of, require_one, require_other_directory
from bert_tf.tools.common.console import print_model
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.model_comparison import milliseconds_per_text, print_table, scores_of
from bert_tf.tools.common.text_files import read_texts
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun

define_flags("""
    teacher (str): The directory of the fine-tuned model, with labels and tokenizer.
    student (str): The student starts from this checkpoint, which must have the teacher's
        vocabulary.
    num_hidden_layers (int >= 1): The student starts from this number of the teacher's blocks,
        evenly spaced.
    student_layers (list): The student starts from these blocks of the teacher, counted from 0, such
        as 0,2,5.
    unlabeled_file (str): With --logits_weight=1: a file with more texts to learn from, one per
        line; a tab separates the two texts of a pair.
    temperature (float, 2.0): The logits are divided by this before they are compared; above 0.
    logits_weight (float 0 to 1, 0.5): The weight w of the distance from the teacher's
        probabilities; the loss on the labels has the weight 1 - w.
    hidden_weight (float >= 0, 0.0): Weight of the distance between hidden states.
    attention_weight (float >= 0, 0.0): Weight of the distance between attention probabilities.
        Above 0, both models compute with padding.
    max_seq_length (int, 128): Maximum sequence length in tokens; longer text is truncated.
""")
fine_tuning_flags.define_training()
define_flags("""
    timing_rounds (int >= 1, 3): Number of times that each model computes the dev file to measure
        the time per text.
""")
fine_tuning_flags.define_class_weights()
fine_tuning_flags.define_epoch_flags("val_accuracy, val_auc or val_loss")
fine_tuning_flags.define_augmentation()


def check_flags():
    fine_tuning_flags.check_flags(works={})
    require_one("student", "num_hidden_layers", "student_layers")
    if FLAGS.student_layers and not all(layer.isdecimal() for layer in FLAGS.student_layers):
        raise flag_error("student_layers", "must be numbers of blocks, counted from 0")
    for name in ("teacher", "student"):
        if FLAGS[name].value:
            target = os.path.join(FLAGS.output_dir, "model")
            require_other_directory(target, name, "whose model/ would be overwritten")
    if not FLAGS.temperature > 0:
        raise flag_error("temperature", "must be above 0")
    if FLAGS.unlabeled_file and FLAGS.logits_weight < 1:
        raise flag_error(
            "logits_weight", "must be 1 with --unlabeled_file, so that no labels are used"
        )
    if FLAGS.logits_weight == 1 and fine_tuning_flags.changes_loss():
        raise UserError(
            "--logits_weight must be below 1 with --label_smoothing, --focal_gamma or "
            "--class_weights, which change the loss on the labels. Received: --logits_weight=1"
        )


def load_student(teacher):
    """Returns the untrained student and its `layer_map`, the teacher's block for each of its own.

    The map is None for the default of `DistillationModel`.
    """
    from bert_tf.adapt.layer_dropping import student_from_teacher
    from bert_tf.tasks.text_classification.model import BertTextClassifier

    if FLAGS.num_hidden_layers is not None:
        return student_from_teacher(teacher, FLAGS.num_hidden_layers), None
    if FLAGS.student_layers:
        layers = [int(layer) for layer in FLAGS.student_layers]
        return student_from_teacher(teacher, layers=layers), dict(enumerate(layers))
    options = {"max_length": FLAGS.max_seq_length}
    student = BertTextClassifier.from_pretrained(FLAGS.student, **options)
    if student.labels is None:  # the checkpoint has no classifier, or a regressor
        names = ("labels", "num_classes", "problem_type")
        options |= {name: getattr(teacher, name) for name in names}
        student = BertTextClassifier.from_pretrained(FLAGS.student, **options)
    return student, None


def with_unlabeled(inputs):
    """Adds the texts of --unlabeled_file."""
    if not FLAGS.unlabeled_file:
        return inputs
    if isinstance(inputs, list):
        return inputs + read_texts(FLAGS.unlabeled_file, 1)
    return tuple(map(list.__add__, inputs, read_texts(FLAGS.unlabeled_file, 2)))


def main():
    check_flags()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    import keras

    from bert_tf.adapt.distillation_model import DistillationModel
    from bert_tf.training import EpochScores
    from bert_tf.training.evaluation.scores import require_scikit_learn

    require_scikit_learn()
    workers.strategy()
    keras.utils.set_random_seed(FLAGS.seed)
    task = task_flags.task_from_flags()
    fine_tuning_flags.require_classes(task)
    labels = task_flags.known_labels(task, FLAGS.teacher)
    dev_examples = task_flags.read_examples(task, "dev", labels)
    if FLAGS.logits_weight < 1:
        train_examples = task_flags.read_examples(task, "train", labels)
    else:
        unlabeled = with_unlabeled(task_flags.inputs_of(task.read(FLAGS.data_dir, "train", labels)))
    # Every file has been read before the weights are, so that mistakes in one show early.
    weights = options_of("temperature", "logits_weight", "hidden_weight", "attention_weight")
    with workers.strategy().scope():
        teacher = task_flags.load_classifier(task, FLAGS.teacher, "a teacher")
        student, layer_map = load_student(teacher)
        model = DistillationModel(student, teacher, layer_map=layer_map, **weights)
    dev = task_flags.inputs_and_targets(teacher, dev_examples)
    if FLAGS.logits_weight < 1:
        inputs, targets = task_flags.inputs_and_targets(teacher, train_examples)
    else:
        inputs, targets = unlabeled, None
    batches = TrainingBatches(model, inputs, targets)
    loss = fine_tuning.classifier_loss(student, targets)
    fine_tuning.compile_model(model, batches.num_steps, loss=loss)

    results = {"teacher": scores_of(teacher, *dev), "student at start": scores_of(student, *dev)}
    TrainingRun(model, batches, ("teacher", "student", "data_dir")).fit([EpochScores(*dev)])
    results["student"] = scores_of(student, *dev)
    fine_tuning.save_model(student)
    lines = [
        line
        for name, scores in results.items()
        for line in result_files.score_lines(scores, f"{name.replace(' ', '_')}_eval_")
    ]
    result_files.write_lines(os.path.join(FLAGS.output_dir, "eval_results.txt"), lines)
    times = milliseconds_per_text((teacher, student), dev[0], FLAGS.timing_rounds)
    print_table((teacher, student, student), results, (times[0], times[1], times[1]))
    print_model()


if __name__ == "__main__":
    tool.run(workers.run(main), "task_name", "data_dir", "teacher", "output_dir")
