r"""Compares the size, the speed and the scores of several text classifiers or regressors.

    bert-tf compare_models --task_name=sst-2 --data_dir=SST-2 --split=dev \
      --model_dirs=out/model,small/model,out/int8

Prints a table with one line per model: the number of parameters, the size of the weights in memory,
the milliseconds per text (from tokens to logits, in batches by tokens; the median of
--timing_rounds, in each of which the models run in turn) and all scores. With
--precisions=bfloat16 each floating-point model is also compared with itself in that precision. The
tasks and files are those of bert-tf run_classifier.
"""

from bert_tf.errors import user_error
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import flag_error
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.model_comparison import milliseconds_per_text, print_table, scores_of
from bert_tf.tools.common.task_flags import (
    inputs_and_targets,
    known_labels,
    load_classifier,
    read_examples,
    task_from_flags,
)

PRECISIONS = ("float32", "bfloat16", "int8")

define_flags("""
    model_dirs (list): The directories of the models, with labels and tokenizers.
    precisions (list, []): Compares floating-point models in these precisions too: float32
        (prepacked), bfloat16, int8.
    split (dev|test, dev): The file of the task with the texts and labels.
    max_seq_length (int >= 3): Maximum sequence length in tokens; longer text is truncated. Default:
        as each model says.
    timing_rounds (int >= 1, 5): Number of times that each model computes the texts to measure the
        time per text.
""")


def load_models(task):
    """Returns the models by their names in the table."""
    models = {name: load_classifier(task, name, "compared") for name in FLAGS.model_dirs}
    first = models[FLAGS.model_dirs[0]]
    for directory, model in models.items():
        if model.tokenizer is None:
            raise user_error("--model_dirs", "be models with tokenizers", f"{directory} without")
        if model.labels != first.labels:
            expected = "be models with the same labels in the same order"
            received = f"{first.labels} in {FLAGS.model_dirs[0]}, {model.labels} in {directory}"
            raise user_error("--model_dirs", expected, received)
        if model.tokenizer.vocabulary != first.tokenizer.vocabulary:
            received = f"{directory} has another one than {FLAGS.model_dirs[0]}"
            raise user_error("--model_dirs", "be models with the same vocabulary", received)
    for precision in FLAGS.precisions:
        for directory in FLAGS.model_dirs:
            if models[directory].backbone.quantization is None:
                model = load_classifier(task, directory, "compared")
                model.optimize_for_inference(precision)
                models[f"{directory}, {precision}"] = model
    return models


def main():
    from bert_tf.training.evaluation.scores import require_scikit_learn

    wrong = [name for name in FLAGS.precisions if name not in PRECISIONS]
    if wrong:
        raise user_error("--precisions", f"be among {', '.join(PRECISIONS)}", ", ".join(wrong))

    if not FLAGS.model_dirs or len(set(FLAGS.model_dirs)) != len(FLAGS.model_dirs):
        raise flag_error("model_dirs", "must be different directories")
    require_scikit_learn()
    task = task_from_flags()
    examples = read_examples(task, FLAGS.split, known_labels(task, *FLAGS.model_dirs))
    models = load_models(task)
    first = models[FLAGS.model_dirs[0]]
    inputs, targets = inputs_and_targets(first, examples)
    results = {name: scores_of(model, inputs, targets) for name, model in models.items()}
    times = milliseconds_per_text([*models.values()], inputs, FLAGS.timing_rounds)
    print_table([*models.values()], results, times)


if __name__ == "__main__":
    tool.run(main, "task_name", "data_dir", "model_dirs")
