"""What the tools do that train models to write texts: train, evaluate and predict."""

import json
import os

from bert_tf.tools.common import fine_tuning, generation_flags, result_files, tool, workers
from bert_tf.tools.common.console import predicting_verbose, print_model
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.generation_models import examples_of, write
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun


def run(load_model, score_names):
    """Trains, evaluates and predicts, as the flags say.

    Args:
        load_model: A function that returns the model.
        score_names: The scores to report, of those of `generated_text_scores`.
    """
    tool.require_writable(FLAGS.output_dir, "output_dir")
    pairs = dev = test = None
    if FLAGS.do_train:
        pairs = generation_flags.read_pairs("train")
    if FLAGS.do_eval or (FLAGS.do_train and generation_flags.has_split("dev")):
        dev = generation_flags.read_pairs("dev")
    if FLAGS.do_predict:
        test = generation_flags.read_pairs("test", needs_targets=False)
    if FLAGS.do_eval or (test and test[1]):
        from bert_tf.training.evaluation.generated_text import require_text_metrics

        require_text_metrics()  # before any work
    model = load_model()
    if FLAGS.do_train:
        train(model, *(_with_targets(data) for data in (pairs, dev)))
    if FLAGS.do_eval:
        evaluate(model, dev, score_names)
    if FLAGS.do_predict:
        report(model, "test", *test, score_names)
    if FLAGS.do_train:
        print_model()


def train(model, pairs, dev):
    """Trains the model from its newest checkpoint on, and saves it in --output_dir.

    `pairs` and `dev` are sources and targets.
    """
    batches = TrainingBatches(model, *examples_of(model, *pairs))
    fine_tuning.require_checkpoints_to_average(batches.num_steps)
    fine_tuning.compile_model(model, batches.num_steps, loss=fine_tuning.class_loss())
    run = TrainingRun(model, batches, generation_flags.RECORDED)
    print(
        f"{len(pairs[0])} pairs, {batches.tokens_per_step:.0f} tokens per step, "
        f"{batches.steps_per_epoch} steps per epoch, {batches.num_steps} steps"
    )
    data = {"verbose": 0, "validation_batch_size": FLAGS.eval_batch_size}
    if dev:
        data["validation_data"] = examples_of(model, *dev)
        if data["validation_data"][1] is None:
            data["validation_data"] = (data["validation_data"][0],)
    run.fit(_watchers(batches, run.step, len(pairs[0]), dev), **data)
    fine_tuning.save_model(model)


def _watchers(batches, step, num_pairs, dev):
    from bert_tf.tools.common.epoch_lines import EpochExamples, EpochLines
    from bert_tf.training import callbacks

    logs = []
    if workers.is_first():
        logs.append(callbacks.JsonLines(os.path.join(FLAGS.output_dir, "log.jsonl"), step))
    shown = ("loss", "perplexity", "accuracy")
    watchers = [
        callbacks.ProgressLine(batches.num_steps, FLAGS.log_steps, shown, initial_step=step),
        callbacks.TrainingLog(
            FLAGS.log_steps, logs, num_pairs / batches.steps_per_epoch, initial_step=step
        ),
        EpochLines(batches.tokens_per_step),
    ]
    if dev and FLAGS.num_examples:
        watchers.append(EpochExamples(write, *(texts[: FLAGS.num_examples] for texts in dev)))
    return watchers


def evaluate(model, dev, score_names):
    """Reports the loss on the dev file, with the true words before each word, and `report`."""
    with model.distribute_strategy.scope():
        model.compile()
    x, y = examples_of(model, *_with_targets(dev))
    options = {
        "batch_size": FLAGS.eval_batch_size,
        "verbose": predicting_verbose(),
        "return_dict": True,
    }
    report(model, "eval", *dev, score_names, model.evaluate(x, y, **options))


def _with_targets(data):
    """Returns the sources and the first reference of each."""
    return data and (data[0], generation_flags.first_references(data[1]))


def report(model, name, sources, references, score_names, scores=()):
    """Writes the texts for the sources to --output_dir, and with references their scores.

    Args:
        model: The trained model.
        name: How the files begin.
        sources, references: The texts and the list of references of each, or None.
        score_names: The scores to report.
        scores: Other scores, by name.
    """
    texts = [" ".join(text.split()) for text in write(model, sources, predicting_verbose())]
    stem = os.path.join(FLAGS.output_dir, f"{name}_predictions")
    result_files.write_lines(f"{stem}.txt", texts)
    columns = {FLAGS.source_column: sources, "prediction": texts}
    if references:  # a text, or the list of several
        columns[FLAGS.target_column] = [
            several if len(several) > 1 else several[0] for several in references
        ]
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    result_files.write_lines(f"{stem}.jsonl", lines)
    print(f"{len(texts)} texts in {stem}.txt and {stem}.jsonl")
    if references:
        from bert_tf.training.evaluation.generated_text import generated_text_scores

        found = generated_text_scores(texts, references, FLAGS.tokenize, score_names)
        scores = {**dict(scores), **found}
        lines = result_files.score_lines(scores, f"{name}_")
        result_files.report(lines, f"{name}_results.txt", name.capitalize())
