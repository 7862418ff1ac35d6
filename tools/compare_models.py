r"""Compares the size, the speed and the scores of several text classifiers or regressors.

    bert-tf compare_models --task_name=sst-2 --data_dir=SST-2 --split=dev \
      --model_dirs=out/model,small/model,out/int8

Prints a table with one line per model: the number of parameters, the size of the weights in memory,
the milliseconds per text (from tokens to logits, in batches by tokens; the median of
--timing_rounds, in each of which the models run in turn) and all scores. The tasks and files are
those of bert-tf run_classifier.
"""

from absl import flags
from common.model_comparison import milliseconds_per_text, print_table, scores_of
from common.task_flags import inputs_and_targets, load_classifier, read_examples, task_from_flags

from bert_tf import tool
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

flags.DEFINE_list("model_dirs", None, "The directories of the models, with labels and tokenizers.")
flags.DEFINE_enum(
    "split", "dev", ["dev", "test"], "The file of the task with the texts and labels."
)
flags.DEFINE_integer(
    "max_seq_length",
    None,
    "Maximum sequence length in tokens; longer text is truncated. Default: as each model says.",
    lower_bound=3,
)
flags.DEFINE_integer(
    "timing_rounds",
    5,
    "Number of times that each model computes the texts to measure the time per text.",
    lower_bound=1,
)


def load_models(task):
    models = [load_classifier(task, directory, "compared") for directory in FLAGS.model_dirs]
    for directory, model in zip(FLAGS.model_dirs, models):
        if model.tokenizer is None:
            raise UserError(
                f"--model_dirs must be models with tokenizers. Received: {directory} without"
            )
        if model.labels != models[0].labels:
            raise UserError(
                "--model_dirs must be models with the same labels in the same order. "
                f"Received: {models[0].labels} in {FLAGS.model_dirs[0]}, {model.labels} in "
                f"{directory}"
            )
        if model.tokenizer.vocabulary != models[0].tokenizer.vocabulary:
            raise UserError(
                "--model_dirs must be models with the same vocabulary. Received: "
                f"{directory} has another one than {FLAGS.model_dirs[0]}"
            )
    return models


def main():
    from bert_tf.training.evaluation.scores import require_scikit_learn

    if not FLAGS.model_dirs or len(set(FLAGS.model_dirs)) != len(FLAGS.model_dirs):
        raise UserError(
            "--model_dirs must be different directories. Received: "
            f"--model_dirs={','.join(FLAGS.model_dirs)}"
        )
    require_scikit_learn()
    task = task_from_flags()
    models = load_models(task)
    examples = read_examples(task, FLAGS.split, models[0].labels)
    inputs, targets = inputs_and_targets(models[0], examples)
    results = {
        directory: scores_of(model, inputs, targets)
        for directory, model in zip(FLAGS.model_dirs, models)
    }
    times = milliseconds_per_text(models, inputs, FLAGS.timing_rounds)
    print_table(models, results, times)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "model_dirs"])
    tool.run(main)
