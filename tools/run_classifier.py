r"""Fine-tunes a BERT text classifier or regressor, evaluates it and predicts with it.

The flags, files and results are those of google-research/bert's run_classifier.py:

    bert-tf run_classifier --task_name=sst-2 --data_dir=SST-2 \
      --init_checkpoint=uncased_L-12_H-768_A-12 --do_train --do_eval --output_dir=out

The tasks are those of GLUE (cola, sst-2, mrpc, qqp, sts-b, mnli, mnli-mm, qnli, rte, wnli, ax) and
XNLI with their official files; `simple` (lines of text<TAB>label without a header, with the labels
that occur in train.tsv); and `table` (train, dev and test as .tsv, .csv or .jsonl files with named
columns), also for several labels per example and for numbers.

The tool writes to --output_dir:

    model/              the trained model: a Hugging Face directory with tokenizer and labels
    checkpoints/        from which the same command resumes a killed run, but not with --keep_best
    eval_results.txt    the scores of the dev file
    test_results.tsv    one line per example, for bert-tf evaluate: the probabilities of the
                        classes, separated by tabs, or the number
    test_predictions.*  with --task_name=table, in the format of the test file: ids, texts, labels,
                        the predicted label and the probability of every label
    *.png               with --plot: the confusion matrix, ROC, precision and recall, calibration of
                        the dev file, and the learning curves
    lora.safetensors    the LoRA weights, with --lora_rank

With a few labelled texts of each class, --few_shot_pairs=20 --pooling=mean trains by the recipe of
SetFit: a sentence encoder on pairs of texts, then a logistic regression. The result is a classifier
like any other.
"""

import math
import os

from bert_tf.base.optional_packages import require_package
from bert_tf.base.pictures import require_picture
from bert_tf.config import CLASSIFIER_POOLING_MODES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import UserError
from bert_tf.tools.common import (
    checkpoint_flags,
    fine_tuning,
    fine_tuning_flags,
    original_flags,
    result_files,
    tool,
    workers,
)
from bert_tf.tools.common.checks import flag_error, options_of
from bert_tf.tools.common.console import predicting_verbose, print_model, training_verbose
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.prediction_output import write_predictions
from bert_tf.tools.common.task_flags import (
    TABLE,
    given_labels,
    inputs_and_targets,
    inputs_of,
    known_labels,
    read_examples,
    require_model_of,
    table_columns,
    task_from_flags,
)
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun

checkpoint_flags.define_start()
define_flags("""
    max_seq_length (int, 128): Maximum sequence length in tokens; longer text is truncated.
    do_eval (bool, false): Whether to evaluate the model on the dev file.
    do_predict (bool, false): Whether to write predictions for --predict_split.
    predict_split (repeated dev|test, test): The file that --do_predict reads.
""")
fine_tuning_flags.define_training()
define_flags(f"""
    eval_batch_size (int >= 1, 8): Batch size for evaluation.
    predict_batch_size (int >= 1, 8): Batch size for prediction.
    max_train_examples (int >= 1): Train on this number of examples, drawn at random. Default: all
        examples.
    negatives_per_pair (int >= 0, 0): Number of negative pairs to add per training pair, made with
        the second texts of other pairs.
    negative_label (str): With --negatives_per_pair: the label of these pairs.
    pooling ({"|".join(CLASSIFIER_POOLING_MODES)}): How the sequence is pooled for the classifier.
        Default: as the model was trained; cls for a new classifier.
    few_shot_pairs (int >= 1): Train for a few texts of each class, with this number of pairs that
        each text begins, of its class and of another; --learning_rate, --train_batch_size and
        --num_train_epochs are those of the pairs. Default: train on the texts.
    lm_loss_weight (float >= 0): With --causal: the weight of the loss of the next words, which is
        added in training (0.5 in GPT). Default: no such loss.
    ordinal_alpha (float >= 1e-6): For labels that have an order, which is that of --labels or of
        the files: the loss is OrdinalLogLoss with this alpha, such as 1.5, so that a wrong label
        costs more if it is farther. Default: cross-entropy.
    r_drop (float >= 0, 0.0): Each text is computed twice in training, with different dropout, and
        this number times the divergence of the two answers is added to the loss (R-Drop; 1 to 5 for
        GLUE). Only for one label per text.
    both_orders (bool): Whether the vectors of a pair in both orders are added, for pairs whose
        order means nothing.
""")
checkpoint_flags.define_head()
fine_tuning_flags.define_class_weights()
fine_tuning_flags.define_epoch_flags("val_accuracy, val_auc, val_best_f1 or val_loss")
fine_tuning_flags.define_augmentation()
define_flags("""
    threshold (str): The smallest probability of the second of two labels, or of each of several
        labels, with which a text gets it; `best`: the one with the largest F1 on the dev file. It
        is saved in the trained model. Default: as the model says, or the most probable label, and
        0.5 for several labels.
    plot (bool, false): Whether to write pictures, which need matplotlib.
""")
original_flags.define_ignored(("use_tpu", *original_flags.ESTIMATOR_FLAGS))

BEST = "best"
# The loss, the optimizer and the epochs of a training on texts.
_NOT_FEW_SHOT = (
    *("threshold", "plot", "lm_loss_weight", "both_orders", "use_scalar_mix", "lstm_units"),
    *("warmup_proportion", "bias_correction", "weight_decay", "l2_regularization", "layer_decay"),
    *("label_smoothing", "focal_gamma", "class_weights", "reinit_layers", "lora_rank"),
    *("freeze_layers", "unfreeze_every", "keep_best", "early_stopping_patience"),
    *("augment_insertion", "augment_swap", "augment_deletion", "distribution_strategy"),
    *("gradient_accumulation_steps", "negatives_per_pair", "r_drop", "ordinal_alpha"),
)
# google-research/bert run_classifier.py, `get_labels`: its checkpoints do not contain the labels.
_NLI = ("contradiction", "entailment", "neutral")
_ORIGINAL_LABELS = {"cola": ("0", "1"), "mrpc": ("0", "1"), "mnli": _NLI, "xnli": _NLI}


def load_model(task, labels):
    from bert_tf.tasks.text_classification.model import BertTextClassifier

    options = {"labels": list(labels)} if labels else {}
    if FLAGS.do_train:
        options |= {"problem_type": task.problem_type, **checkpoint_flags.head_options()}
        options |= options_of("pooling", "lm_loss_weight", "both_orders")
        if task.problem_type == REGRESSION:
            options["num_classes"] = 1
    options["max_length"] = FLAGS.max_seq_length
    model = checkpoint_flags.load_model(BertTextClassifier, **options)
    original = _ORIGINAL_LABELS.get(FLAGS.task_name, ())
    if model.labels is None and model.num_classes == len(original):
        model.labels = list(original)
    require_model_of(task, model, labels)
    if FLAGS.threshold is not None:
        model.threshold = 0.5 if FLAGS.threshold == BEST else float(FLAGS.threshold)
    return model


def training_examples(task, labels):
    """Reads the training file; draws a sample and adds negative pairs if the flags say so."""
    import random

    from bert_tf.inputs.negative_pairs import negative_pairs
    from bert_tf.tasks.text_classification.files import TextExample

    examples = read_examples(task, "train", labels)
    if FLAGS.max_train_examples is not None and FLAGS.max_train_examples < len(examples):
        examples = random.Random(FLAGS.seed).sample(examples, FLAGS.max_train_examples)
    if FLAGS.negatives_per_pair:
        if examples[0].text_b is None or FLAGS.negative_label is None:
            raise UserError(
                "--negatives_per_pair must be used with pairs and --negative_label. Received: "
                f"{'single texts' if examples[0].text_b is None else 'pairs'}, "
                f"--negative_label={FLAGS.negative_label}"
            )
        rows = [example for example in examples if example.label != FLAGS.negative_label]
        positives = [(row.text_a, row.text_b) for row in rows]
        drawn = negative_pairs(positives, FLAGS.negatives_per_pair, FLAGS.seed)
        examples += [TextExample(a, b, FLAGS.negative_label) for a, b in drawn]
    return examples


def watched_scores():
    """Returns the score that --keep_best names, without those of callbacks."""
    name = (FLAGS.keep_best or "").removeprefix("val_")
    return () if name in ("", "best_f1", "best_threshold") else (name,)


def check_flags(has_dev):
    """Refuses flags that do not fit together, before any work."""
    fine_tuning_flags.check_flags(has_dev=has_dev)
    if FLAGS.threshold not in (None, BEST) or (FLAGS.threshold == BEST and not has_dev):
        try:
            is_valid = 0 <= float(FLAGS.threshold) <= 1
        except ValueError:
            is_valid = False
        if not is_valid:
            raise flag_error("threshold", "must be in [0, 1], or `best` with a dev file")
    if FLAGS.ordinal_alpha is not None and (FLAGS.label_smoothing or FLAGS.focal_gamma):
        rule = "must not be set with --label_smoothing or --focal_gamma, which change another loss"
        raise flag_error("ordinal_alpha", rule)
    if FLAGS.plot:
        require_picture("plot.png")
    if FLAGS.few_shot_pairs:
        require_package("sklearn", "--few_shot_pairs")
        for name in _NOT_FEW_SHOT:
            if FLAGS[name].present:
                raise flag_error(name, "must not be set with --few_shot_pairs", "few_shot_pairs")


def set_best_threshold(model, examples):
    """Gives the model the threshold with the largest F1 on these examples."""
    from bert_tf.training.callbacks import best_threshold

    inputs, targets = inputs_and_targets(model, examples)
    probabilities = model.probabilities(model.predict(inputs, verbose=predicting_verbose()))
    model.threshold, f1 = best_threshold(targets, model.preprocessor.positive(probabilities))
    print(f"The threshold is {model.threshold}, with an F1 of {f1:.4f} on the dev file.")


def train_few_shot(model, train_examples):
    from bert_tf.adapt import fit_few_shot

    x, _ = inputs_and_targets(model, train_examples)
    fit_few_shot(
        model,
        x,
        [example.label for example in train_examples],
        num_pairs=FLAGS.few_shot_pairs,
        epochs=math.ceil(FLAGS.num_train_epochs),
        batch_size=FLAGS.train_batch_size,
        learning_rate=FLAGS.learning_rate,
        seed=FLAGS.seed,
        verbose=training_verbose(),
    )
    fine_tuning.save_model(model)


def train(model, task, train_examples, dev_examples):
    from keras.callbacks import LambdaCallback

    from bert_tf.training import EpochScores
    from bert_tf.training.evaluation import draw_history

    x, y = inputs_and_targets(model, train_examples)
    batches = TrainingBatches(model, x, y)
    metrics = ["accuracy"] if task.problem_type == SINGLE_LABEL else None
    loss = fine_tuning.classifier_loss(model, y)
    options = {"loss": loss, "metrics": metrics, **options_of("r_drop")}
    fine_tuning.compile_model(model, batches.num_steps, **options)
    recorded = ("task_name", "data_dir", "init_checkpoint", "max_seq_length")
    recorded += ("ordinal_alpha", "r_drop")
    run = TrainingRun(model, batches, recorded)
    callbacks = []
    if dev_examples:
        callbacks.append(EpochScores(*inputs_and_targets(model, dev_examples)))
    epochs = []
    callbacks.append(LambdaCallback(on_epoch_end=lambda epoch, logs: epochs.append(dict(logs))))
    run.fit(callbacks)
    if FLAGS.plot and epochs:
        names = dict.fromkeys(name for logs in epochs for name in logs)
        history = {n: [logs[n] for logs in epochs if n in logs] for n in names}
        draw_history(history, os.path.join(FLAGS.output_dir, "learning_curves.png"))
    if FLAGS.threshold == BEST:
        set_best_threshold(model, dev_examples)
    fine_tuning.save_model(model)


def evaluate(model, task, examples):
    from bert_tf.training import all_scores
    from bert_tf.training.checkpointing.checkpoint_files import checkpoint_steps
    from bert_tf.training.evaluation.reports import ClassReport

    inputs, targets = inputs_and_targets(model, examples)
    options = {"batch_size": FLAGS.eval_batch_size, "verbose": predicting_verbose()}
    probabilities = model.probabilities(model.predict(inputs, **options))
    kind = model.problem_type
    results = all_scores(targets, probabilities, kind, model.threshold)
    steps = checkpoint_steps(os.path.join(FLAGS.output_dir, "checkpoints"))
    # Matches google-research/bert: tf.estimator adds two lines to the metrics.
    added = [f"global_step = {max(steps, default=0)}", f"loss = {results['loss']:.6f}"]
    result_files.report(result_files.score_lines(results), not_printed=added)
    official = ", ".join(f"eval_{name}" for name in task.metrics if name in results)
    if official:
        print(f"The official scores of this task: {official}")
    if kind != REGRESSION:
        report = ClassReport(
            targets, probabilities, kind, model.preprocessor.names, model.threshold
        )
        print(*report.lines(), sep="\n")
        if FLAGS.plot:
            report.save_pictures(FLAGS.output_dir)


def predict(model, task, split, examples):
    options = {"batch_size": FLAGS.predict_batch_size, "verbose": predicting_verbose()}
    logits = model.predict(inputs_of(examples), **options)
    path = os.path.join(FLAGS.output_dir, f"{split}_results.tsv")
    result_files.write_table(path, model.probabilities(logits))
    columns = "the number" if model.problem_type == REGRESSION else " ".join(model.labels)
    print(f"{len(examples)} predictions in {path}; columns: {columns}")
    if FLAGS.task_name == TABLE:
        suffix = os.path.splitext(task.path(FLAGS.data_dir, split))[1].lower()
        path = os.path.join(FLAGS.output_dir, f"{split}_predictions{suffix}")
        answers = model.preprocessor.decode(logits)
        write_predictions(path, examples, answers, table_columns(), model)
        print(f"The same with the texts in {path}")


def main():
    task = task_from_flags()
    has_dev = task.dev is not None and os.path.exists(task.path(FLAGS.data_dir, "dev"))
    wants_dev = FLAGS.do_eval or (has_dev and (FLAGS.do_train or FLAGS.threshold == BEST))
    check_flags(wants_dev)
    original_flags.print_ignored()
    tool.require_writable(FLAGS.output_dir, "output_dir")
    fine_tuning_flags.require_classes(task)
    if wants_dev:
        from bert_tf.training.evaluation.scores import require_scores

        require_scores(task.metrics + watched_scores())
    labels = given_labels()
    if FLAGS.do_train:
        train_examples = training_examples(task, labels)
        labels = labels or task.label_list(train_examples)
    known = labels or known_labels(task, *checkpoint_flags.directories())
    dev_examples = read_examples(task, "dev", known) if wants_dev else None
    splits = dict.fromkeys(FLAGS.predict_split) if FLAGS.do_predict else ()
    examples_of = {split: task.read(FLAGS.data_dir, split, known) for split in splits}
    # Every file has been read before the weights are, so that mistakes in one show early.
    model = load_model(task, labels)

    if FLAGS.do_train and FLAGS.few_shot_pairs:
        train_few_shot(model, train_examples)
    elif FLAGS.do_train:
        train(model, task, train_examples, dev_examples)
    elif FLAGS.threshold == BEST:
        set_best_threshold(model, dev_examples)
    if FLAGS.do_eval:
        evaluate(model, task, dev_examples)
    for split, examples in examples_of.items():
        predict(model, task, split, examples)
    if FLAGS.do_train:
        print_model()


if __name__ == "__main__":
    tool.run(workers.run(main), "task_name", "data_dir", "output_dir")
