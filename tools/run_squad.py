r"""Fine-tunes a BERT question answering model on SQuAD 1.1 or 2.0, and answers questions with it.

The flags, files and results are those of google-research/bert's run_squad.py:

    bert-tf run_squad --init_checkpoint=uncased_L-12_H-768_A-12 --do_train \
      --train_file=train-v1.1.json --do_predict --predict_file=dev-v1.1.json --output_dir=out

The tool writes to --output_dir:

    model/                    the trained model: a Hugging Face directory with its settings
    checkpoints/              from which the same command resumes a killed run
    predictions.json          the answer to each question, by id
    nbest_predictions.json    the best answers to each question
    null_odds.json            for SQuAD 2.0: the score of no answer minus that of the best span
    eval_results.txt          if the file has answers: the official exact match and F1; for SQuAD
                              2.0 also the best --null_score_diff_threshold
    lora.safetensors          the LoRA weights, with --lora_rank

Without --do_train and --init_checkpoint, the model in --output_dir answers, with its settings
unless flags set others.
"""

import logging
import os

from bert_tf.base.files import staged_files
from bert_tf.errors import DataError
from bert_tf.tasks.question_answering.files import read_squad
from bert_tf.tools.common import (
    checkpoint_flags,
    fine_tuning,
    fine_tuning_flags,
    original_flags,
    result_files,
    tool,
    workers,
)
from bert_tf.tools.common.console import predicting_verbose, print_model
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun

define_flags("""
    train_file (str): The SQuAD file to train on, such as train-v1.1.json.
    predict_file (str): The SQuAD file with the questions to answer; it needs no answers.
""")
checkpoint_flags.define_start()
define_flags("""
    max_seq_length (int, 384): Maximum length of a window in tokens; a longer context is split into
        several windows.
    doc_stride (int >= 1, 128): Number of tokens between the starts of two windows of a context.
    max_query_length (int >= 1, 64): Maximum length of a question in tokens; a longer question is
        truncated.
    do_predict (bool, false): Whether to answer the questions of --predict_file.
    predict_batch_size (int >= 1, 8): Windows per batch in prediction.
""")
checkpoint_flags.define_lstm()
fine_tuning_flags.define_training(batch_of="windows")
define_flags("""
    n_best_size (int >= 1, 20): Maximum number of answers per question in nbest_predictions.json.
    max_answer_length (int >= 1, 30): Maximum length of an answer in tokens.
    verbose_logging (bool, false): Whether to log the id of every question whose answer is not in
        its context.
    version_2_with_negative (bool, false): Whether questions may have no answer, as in SQuAD 2.0.
    null_score_diff_threshold (float, 0.0): With --version_2_with_negative: predict no answer if its
        score exceeds that of the best span by more than this.
""")
original_flags.define_ignored(("use_tpu", *original_flags.ESTIMATOR_FLAGS))

# Flag -> the model's argument.
_MODEL_FLAGS = {
    "max_seq_length": "max_length",
    "doc_stride": "doc_stride",
    "max_query_length": "max_query_length",
    "n_best_size": "n_best_size",
    "max_answer_length": "max_answer_length",
    "version_2_with_negative": "allow_no_answer",
    "null_score_diff_threshold": "null_score_diff_threshold",
}
_CANDIDATE = ("text", "probability", "start_logit", "end_logit")  # in nbest_predictions.json


def load_model():
    from bert_tf.tasks.question_answering.model import BertQuestionAnswerer

    options = {
        argument: FLAGS[flag].value
        for flag, argument in _MODEL_FLAGS.items()
        if FLAGS.init_checkpoint or FLAGS[flag].present
    }
    if FLAGS.do_train:
        options |= checkpoint_flags.lstm_options()
    return checkpoint_flags.load_model(BertQuestionAnswerer, **options)


def columns_of(examples):
    return [example.question for example in examples], [example.context for example in examples]


def check_answers(examples):
    """Requires an answer to every training question, or `is_impossible` with SQuAD 2.0."""
    allowed = FLAGS.version_2_with_negative
    without = [
        example.id
        for example in examples
        if not (example.answers or (allowed and example.is_impossible))
    ]
    if without:
        raise DataError(
            f"{FLAGS.train_file} must have an answer to every question"
            f"{', or is_impossible=true' if allowed else ''}. Received: {len(without)} without, "
            f"the first with id {without[0]!r}."
            + ("" if allowed else " For SQuAD 2.0, set --version_2_with_negative.")
        )


def train(model, examples):
    import keras

    answers = [example.training_answer() for example in examples]
    batches = TrainingBatches(model, columns_of(examples), answers)
    print(f"{len(examples)} questions, {batches.num_rows} windows, {batches.num_steps} steps")
    with model.distribute_strategy.scope():
        metrics = [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]
    loss = fine_tuning.class_loss()
    fine_tuning.compile_model(model, batches.num_steps, loss=loss, metrics=metrics)
    TrainingRun(model, batches, ("train_file", *_MODEL_FLAGS)).fit()
    fine_tuning.save_model(model)


def predict(model, examples):
    """Writes the answers and, if the file has the true ones, their official scores."""
    from bert_tf.tasks.question_answering.metrics import best_null_thresholds, squad_scores

    selections = model.select(
        *columns_of(examples), batch_size=FLAGS.predict_batch_size, verbose=predicting_verbose()
    )
    predictions, n_best, differences = {}, {}, {}
    for example, selection in zip(examples, selections):
        predictions[example.id] = selection.answer.text
        differences[example.id] = selection.score_difference
        n_best[example.id] = [
            {name: getattr(answer, name) for name in _CANDIDATE} for answer in selection.n_best
        ]
    files = {"predictions.json": predictions, "nbest_predictions.json": n_best}
    if model.allow_no_answer:
        files["null_odds.json"] = differences
    with staged_files(FLAGS.output_dir) as new:
        for name, content in files.items():
            result_files.write_json(os.path.join(new, name), content, indent=4)
    print(f"{len(examples)} answers in {FLAGS.output_dir}/predictions.json")
    if all(example.has_answers for example in examples):
        results = squad_scores(examples, predictions, model.allow_no_answer)
        if model.allow_no_answer:
            texts = {
                example.id: selection.best.text if selection.best is not None else ""
                for example, selection in zip(examples, selections)
            }
            results.update(best_null_thresholds(examples, texts, differences))
        result_files.report([f"{name} = {value}" for name, value in results.items()])


def main():
    fine_tuning_flags.check_flags(
        {"do_train": ("train_file", "init_checkpoint"), "do_predict": ("predict_file",)}
    )
    original_flags.print_ignored()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    if FLAGS.verbose_logging:
        logging.getLogger("bert_tf").setLevel(logging.DEBUG)
    # Both files are read and the model is loaded before any work, so that errors show early.
    train_examples = read_squad(FLAGS.train_file) if FLAGS.do_train else None
    predict_examples = read_squad(FLAGS.predict_file) if FLAGS.do_predict else None
    if FLAGS.do_train:
        check_answers(train_examples)
    model = load_model()
    if FLAGS.do_train:
        train(model, train_examples)
    if FLAGS.do_predict:
        predict(model, predict_examples)
    if FLAGS.do_train:
        print_model()


if __name__ == "__main__":
    tool.run(workers.run(main), "output_dir")
