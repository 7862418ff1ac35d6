r"""Fine-tunes a BERT text classifier or regressor, evaluates it and predicts with it.

The flags, files and results are those of google-research/bert's run_classifier.py:

    python tools/run_classifier.py --task_name=sst-2 --data_dir=SST-2 \
      --init_checkpoint=uncased_L-12_H-768_A-12 --do_train --do_eval --output_dir=out

The tasks are those of GLUE (cola, sst-2, mrpc, qqp, sts-b, mnli, mnli-mm, qnli, rte, wnli, ax) and
XNLI with their official files; `simple` (lines of text<TAB>label without a header, with the labels
that occur in train.tsv); and `table` (train, dev and test as .tsv, .csv or .jsonl files with named
columns), also for several labels per example and for numbers.

The tool writes to --output_dir:

    model/              the trained model: a Hugging Face directory with tokenizer and labels
    checkpoints/        the training state: the same command resumes a killed run from the newest
                        checkpoint and does not train a finished run again; with --keep_best a
                        killed run starts from the beginning
    eval_results.txt    the scores of the dev file
    test_results.tsv    one line per example: the probabilities of the classes, separated by tabs,
                        or the number
    lora.safetensors    the LoRA weights, with --lora_rank

tools/evaluate.py reads the predictions.
"""

import os

import numpy as np
from absl import flags
from common import checkpoint_flags, fine_tuning, original_flags
from common.task_flags import inputs_of, require_labels, require_model_of, task_from_flags

from bert_tf import tool
from bert_tf.config import MULTI_LABEL, POOLING_MODES, REGRESSION, SINGLE_LABEL
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "output_dir", None, "The directory to write the trained model and the results to."
)
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "The model to start from: a Hugging Face directory, a TF1 checkpoint directory, or the prefix "
    "of a TF1 checkpoint. Without --do_train: the trained model (default: the one in "
    "--output_dir).",
)
flags.DEFINE_string(
    "bert_config_file", None, "The config file. Default: the one next to the checkpoint."
)
flags.DEFINE_string(
    "vocab_file", None, "The vocabulary file. Default: the one next to the checkpoint."
)
flags.DEFINE_bool(
    "do_lower_case",
    None,
    "Whether to convert the text to lower case. Default: as the tokenizer's files say.",
)
flags.DEFINE_integer(
    "max_seq_length", 128, "Maximum sequence length in tokens; longer text is truncated."
)
flags.DEFINE_bool("do_train", False, "Whether to train the model.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate the model on the dev file.")
flags.DEFINE_bool("do_predict", False, "Whether to write predictions for --predict_split.")
flags.DEFINE_enum("predict_split", "test", ["dev", "test"], "The file that --do_predict reads.")
flags.DEFINE_integer("train_batch_size", 32, "Batch size for training.", lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 8, "Batch size for evaluation.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 8, "Batch size for prediction.", lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate of Adam.", lower_bound=0.0)
flags.DEFINE_float(
    "num_train_epochs", 3.0, "Number of training epochs; may be a fraction.", lower_bound=0.0
)
flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the training steps that are warm-up, in which the learning rate rises from 0.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_integer(
    "max_train_examples",
    None,
    "Train on this number of examples, drawn at random. Default: all examples.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "negatives_per_pair",
    0,
    "Number of negative pairs to add per training pair, made with the second texts of other pairs.",
    lower_bound=0,
)
flags.DEFINE_string("negative_label", None, "With --negatives_per_pair: the label of these pairs.")
flags.DEFINE_enum(
    "pooling",
    None,
    POOLING_MODES,
    "How the sequence is pooled for the classifier. Default: as the model was trained; cls for a "
    "new classifier.",
)
flags.DEFINE_integer(
    "num_encoder_layers",
    None,
    "Use only this number of encoder blocks, from the first. Default: all blocks.",
)
flags.DEFINE_float(
    "classifier_dropout",
    None,
    "Dropout rate before the classifier. Default: as the config file says.",
)
fine_tuning.define_class_weights()
fine_tuning.define_epoch_flags("val_accuracy, val_auc, val_best_f1 or val_loss")
fine_tuning.define_augmentation()
flags.DEFINE_integer(
    "save_checkpoints_steps", 1000, "Number of steps between two checkpoints.", lower_bound=1
)
original_flags.define_ignored(*original_flags.ESTIMATOR_FLAGS)
flags.DEFINE_bool(
    "bias_correction",
    False,
    "Whether Adam corrects the bias of its moments; the original does not.",
)
flags.DEFINE_integer("seed", 12345, "Seed of the head, the shuffling and the dropout.")

# google-research/bert run_classifier.py, `get_labels`: its checkpoints do not contain the labels.
_NLI = ("contradiction", "entailment", "neutral")
_ORIGINAL_LABELS = {"cola": ("0", "1"), "mrpc": ("0", "1"), "mnli": _NLI, "xnli": _NLI}


def load_model(task, labels):
    """Loads the model to start from and checks it against the task."""
    from bert_tf.tasks.text_classification.model import BertTextClassifier

    options = {"labels": list(labels)} if labels else {}
    if FLAGS.do_train:
        options["problem_type"] = task.problem_type
        if FLAGS.pooling is not None:
            options["pooling"] = FLAGS.pooling
        options["num_encoder_layers"] = FLAGS.num_encoder_layers
        if task.problem_type == REGRESSION:
            options["num_classes"] = 1
        if FLAGS.classifier_dropout is not None:
            options["dropout"] = FLAGS.classifier_dropout
    model = checkpoint_flags.load_model(
        BertTextClassifier, max_length=FLAGS.max_seq_length, **options
    )
    original = _ORIGINAL_LABELS.get(FLAGS.task_name.lower(), ())
    if model.labels is None and model.num_classes == len(original):
        model.labels = list(original)
    require_model_of(task, model, labels)
    return model


def training_examples(task, labels):
    """Reads the training file; draws a sample and adds negative pairs if the flags say so."""
    import random

    from bert_tf.data.negative_pairs import negative_pairs
    from bert_tf.tasks.text_classification.files import TextExample

    examples = task.read(FLAGS.data_dir, "train", labels)
    require_labels(examples, task.path(FLAGS.data_dir, "train"))
    if FLAGS.max_train_examples is not None and FLAGS.max_train_examples < len(examples):
        examples = random.Random(FLAGS.seed).sample(examples, FLAGS.max_train_examples)
    if FLAGS.negatives_per_pair:
        if examples[0].text_b is None or FLAGS.negative_label is None:
            raise UserError(
                "--negatives_per_pair must be used with pairs and --negative_label. Received: "
                f"{'single texts' if examples[0].text_b is None else 'pairs'}, "
                f"--negative_label={FLAGS.negative_label}"
            )
        positives = [
            (example.text_a, example.text_b)
            for example in examples
            if example.label != FLAGS.negative_label
        ]
        drawn = negative_pairs(positives, FLAGS.negatives_per_pair, FLAGS.seed)
        examples += [TextExample(a, b, FLAGS.negative_label) for a, b in drawn]
    return examples


def train(model, task, train_examples, dev_examples):
    from bert_tf.training import EpochScores, ThresholdSweep
    from bert_tf.training.callbacks import StopOnSignal

    batch_size = FLAGS.train_batch_size
    steps_per_epoch = -(-len(train_examples) // batch_size)
    num_steps = max(1, int(steps_per_epoch * FLAGS.num_train_epochs))
    schedule = fine_tuning.schedule(num_steps)
    targets = model.targets([example.label for example in train_examples])
    loss = "auto"
    if task.problem_type == SINGLE_LABEL:
        loss = fine_tuning.class_loss(targets, model.num_classes)
    elif task.problem_type == MULTI_LABEL:
        loss = fine_tuning.multi_label_loss()
    fine_tuning.prepare_model(model)
    model.compile(
        fine_tuning.optimizer(schedule, bias_correction=FLAGS.bias_correction),
        loss,
        metrics=["accuracy"] if task.problem_type == SINGLE_LABEL else None,
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
    )
    checkpoint = training_checkpoint()
    step = checkpoint.restore(model)
    callbacks = []
    if dev_examples:
        dev = (inputs_of(dev_examples), model.targets([example.label for example in dev_examples]))
        callbacks.append(EpochScores(*dev))
        if task.problem_type == SINGLE_LABEL and model.num_classes == 2:
            callbacks.append(ThresholdSweep(*dev))
    callbacks += fine_tuning.callbacks()
    if not FLAGS.keep_best:
        callbacks += [checkpoint, StopOnSignal(checkpoint, initial_step=step)]
    if step >= num_steps:
        print(f"Nothing is left to train: the newest checkpoint is of step {step}.")
    else:
        fine_tuning.fit(
            model, inputs_of(train_examples), targets, batch_size, num_steps, step, callbacks
        )
        if FLAGS.keep_best:  # only this process knows the best epoch, so it is saved at the end
            checkpoint.set_model(model)
            checkpoint.step = num_steps
            checkpoint.save()
    fine_tuning.finish_model(model)
    model.save_pretrained(os.path.join(FLAGS.output_dir, "model"))


def training_checkpoint():
    """Creates the checkpoint that a run resumes from when it is started again."""
    from bert_tf.training import TrainingCheckpoint

    names = (
        "task_name",
        "data_dir",
        "init_checkpoint",
        "max_seq_length",
        "train_batch_size",
        "learning_rate",
        "num_train_epochs",
        "seed",
    )
    return TrainingCheckpoint(
        os.path.join(FLAGS.output_dir, "checkpoints"),
        save_every=FLAGS.save_checkpoints_steps,
        keep=2,
        settings={**{name: FLAGS[name].value for name in names}, **fine_tuning.settings()},
    )


def global_step():
    """Returns the step of the newest checkpoint in --output_dir, or 0."""
    from bert_tf.training.checkpointing.checkpoint_files import checkpoint_steps

    return max(checkpoint_steps(os.path.join(FLAGS.output_dir, "checkpoints")), default=0)


def evaluate(model, task, examples):
    from bert_tf.training import all_scores

    logits = model.predict(inputs_of(examples), batch_size=FLAGS.eval_batch_size)
    targets = model.targets([example.label for example in examples])
    results = all_scores(targets, model.probabilities(logits), model.problem_type)
    lines = [f"eval_{name} = {value:.6f}" for name, value in sorted(results.items())]
    # Matches google-research/bert: tf.estimator adds these two lines to the metrics.
    lines += [f"global_step = {global_step()}", f"loss = {results['loss']:.6f}"]
    with atomic_path(os.path.join(FLAGS.output_dir, "eval_results.txt")) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    official = ", ".join(f"eval_{name}" for name in task.metrics if name in results)
    print("***** Eval results *****", *lines, sep="\n")
    if official:
        print(f"The official scores of this task: {official}")


def predict(model, examples):
    logits = model.predict(inputs_of(examples), batch_size=FLAGS.predict_batch_size)
    path = os.path.join(FLAGS.output_dir, f"{FLAGS.predict_split}_results.tsv")
    with atomic_path(path) as new:
        np.savetxt(new, model.probabilities(logits), fmt="%.8f", delimiter="\t")
    columns = "the number" if model.problem_type == REGRESSION else " ".join(model.labels)
    print(f"{len(examples)} predictions in {path}; columns: {columns}")


def main():
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise UserError(
            "At least one of --do_train, --do_eval and --do_predict must be true. Received: none"
        )
    if FLAGS.do_train and not FLAGS.init_checkpoint:
        raise UserError(
            "--init_checkpoint must be set with --do_train: it is the model to start from. "
            "Received: none"
        )
    fine_tuning.check_flags()
    original_flags.tell_ignored(*original_flags.ESTIMATOR_FLAGS)
    tool.require_writable(FLAGS.output_dir, "output_dir")
    import keras

    from bert_tf.training.evaluation.scores import require_scikit_learn

    keras.utils.set_random_seed(FLAGS.seed)

    task = task_from_flags()
    if task.problem_type == REGRESSION and fine_tuning.changes_loss():
        raise UserError(
            "--label_smoothing, --focal_gamma and --class_weights must be used with classes. "
            f"Received: --task_name={FLAGS.task_name}, whose labels are numbers"
        )
    labels = tuple(FLAGS.labels) if FLAGS.labels else None
    train_examples = None
    if FLAGS.do_train:
        train_examples = training_examples(task, labels)
        labels = labels or task.label_list(train_examples)
    wants_dev = FLAGS.do_eval or (
        FLAGS.do_train and task.dev is not None and os.path.exists(task.path(FLAGS.data_dir, "dev"))
    )
    if FLAGS.keep_best and not wants_dev:
        raise UserError(
            "--keep_best must have a dev file to score after each epoch. Received: no file "
            f"{task.path(FLAGS.data_dir, 'dev')}"
        )
    if wants_dev:
        require_scikit_learn()
    model = load_model(task, labels)
    labels = model.labels and tuple(model.labels)
    dev_examples = test_examples = None
    if wants_dev:
        dev_examples = task.read(FLAGS.data_dir, "dev", labels)
        require_labels(dev_examples, task.path(FLAGS.data_dir, "dev"))
    if FLAGS.do_predict:
        test_examples = task.read(FLAGS.data_dir, FLAGS.predict_split, labels)

    if FLAGS.do_train:
        train(model, task, train_examples, dev_examples)
    if FLAGS.do_eval:
        evaluate(model, task, dev_examples)
    if FLAGS.do_predict:
        predict(model, test_examples)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "output_dir"])
    tool.run(main)
