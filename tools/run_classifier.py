"""Fine-tunes, evaluates and runs a BERT text classifier on tab-separated files.

Flags, files and results as google-research/bert's run_classifier.py:

    python tools/run_classifier.py --task_name=sst-2 --data_dir=SST-2 \
      --init_checkpoint=uncased_L-12_H-768_A-12 --do_train --do_eval --output_dir=out

Tasks: `simple` (text<TAB>label, no header, labels are whatever occurs in train.tsv), `cola`,
`sst-2`, `mrpc`, `mnli` (their GLUE files). In --output_dir: `model/` (a Hugging Face directory with
tokenizer and labels), `eval_results.txt`, `test_results.tsv` (a line an example, the classes'
probabilities separated by tabs).
"""

import os

import numpy as np
from absl import flags

from bert_tf import tool
from bert_tf.config import POOLING_MODES
from bert_tf.data.classification_tasks import TASKS
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

flags.DEFINE_enum("task_name", None, sorted(TASKS), "The task to train.", case_sensitive=False)
flags.DEFINE_string("data_dir", None, "The directory with the task's .tsv files.")
flags.DEFINE_list(
    "labels",
    None,
    "The labels in the order of their ids; of two, the second is the positive class of F1 and AUC. "
    "Default: the task's own, or those of train.tsv, sorted.",
)
flags.DEFINE_string("output_dir", None, "Where the trained model and the results are written.")
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "A Hugging Face directory, a TF1 checkpoint directory, or a TF1 checkpoint's prefix. "
    "Without --do_train: the trained model (default: the one in --output_dir).",
)
flags.DEFINE_string("bert_config_file", None, "The config file, if not beside the checkpoint.")
flags.DEFINE_string("vocab_file", None, "The vocabulary, if not beside the checkpoint.")
flags.DEFINE_bool("do_lower_case", None, "Lower the text. Default: as the tokenizer's files say.")
flags.DEFINE_integer("max_seq_length", 128, "Longest sequence in tokens; longer text is cut.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on the dev file.")
flags.DEFINE_bool("do_predict", False, "Whether to predict the test file.")
flags.DEFINE_enum("predict_split", "test", ["dev", "test"], "Which file --do_predict reads.")
flags.DEFINE_integer("train_batch_size", 32, "Batch size for training.", lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 8, "Batch size for evaluation.", lower_bound=1)
flags.DEFINE_integer("predict_batch_size", 8, "Batch size for prediction.", lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate of Adam.", lower_bound=0.0)
flags.DEFINE_float("num_train_epochs", 3.0, "Epochs of training.", lower_bound=0.0)
flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the training steps over which the learning rate rises.",
    lower_bound=0.0,
    upper_bound=1.0,
)
flags.DEFINE_enum("pooling", "cls", POOLING_MODES, "What the classifier sees of the sequence.")
flags.DEFINE_integer("num_encoder_layers", None, "Use only the first k encoder blocks.")
flags.DEFINE_float(
    "classifier_dropout", None, "Dropout before the classifier. Default: as the config says."
)
flags.DEFINE_bool("bias_correction", False, "Adam with bias correction (the original has none).")
flags.DEFINE_integer("seed", 12345, "Seed of the head, the shuffling and the dropout.")


def load_model(labels):
    """The model to start from, with everything about it checked."""
    from bert_tf.models.text_classifier import BertTextClassifier
    from bert_tf.text.tokenizer import BertTokenizer

    trained = os.path.join(FLAGS.output_dir, "model")
    path = FLAGS.init_checkpoint or trained
    options = {"labels": list(labels)} if labels else {}
    tokenizer = None
    if FLAGS.vocab_file:
        lowercase = True if FLAGS.do_lower_case is None else FLAGS.do_lower_case
        tokenizer = BertTokenizer(FLAGS.vocab_file, lowercase=lowercase)
    elif FLAGS.do_lower_case is not None:
        tokenizer = BertTokenizer.from_pretrained(path, lowercase=FLAGS.do_lower_case)
    if FLAGS.do_train:
        options["pooling"] = FLAGS.pooling
        options["num_encoder_layers"] = FLAGS.num_encoder_layers
        if FLAGS.classifier_dropout is not None:
            options["dropout"] = FLAGS.classifier_dropout
    return BertTextClassifier.from_pretrained(
        path,
        config_file=FLAGS.bert_config_file,
        tokenizer=tokenizer,
        max_length=FLAGS.max_seq_length,
        **options,
    )


def inputs_of(examples):
    """What the model's `fit` and `predict` take: texts, or texts and their pairs."""
    texts = [example.text_a for example in examples]
    if examples[0].text_b is None:
        return texts
    return texts, [example.text_b for example in examples]


def ids_of(examples, labels):
    ids = {label: index for index, label in enumerate(labels)}
    return np.array([ids[example.label] for example in examples], np.int32)


def metrics_for(labels):
    from bert_tf.training import BinaryAUC, BinaryF1

    return ["accuracy"] + ([BinaryF1(), BinaryAUC()] if len(labels) == 2 else [])


def train(model, train_examples, dev_examples, labels):
    from bert_tf.training import AdamWeightDecay, ThresholdSweep, WarmupLinearDecay

    batch_size = FLAGS.train_batch_size
    steps_per_epoch = -(-len(train_examples) // batch_size)
    num_steps = max(1, int(steps_per_epoch * FLAGS.num_train_epochs))
    schedule = WarmupLinearDecay(
        FLAGS.learning_rate, num_steps, int(num_steps * FLAGS.warmup_proportion)
    )
    model.compile(
        AdamWeightDecay(schedule, bias_correction=FLAGS.bias_correction),
        metrics=metrics_for(labels),
    )
    x, y = inputs_of(train_examples), ids_of(train_examples, labels)
    options = {"batch_size": batch_size}
    if dev_examples:
        dev = inputs_of(dev_examples), ids_of(dev_examples, labels)
        options["validation_data"] = dev
        if len(labels) == 2:
            options["callbacks"] = [ThresholdSweep(*dev)]
    epochs, rest = divmod(num_steps, steps_per_epoch)
    if epochs:
        model.fit(x, y, epochs=epochs, **options)
    if rest:  # --num_train_epochs with a fraction
        model.fit(x, y, initial_epoch=epochs, epochs=epochs + 1, steps_per_epoch=rest, **options)
    model.save_pretrained(os.path.join(FLAGS.output_dir, "model"))


def evaluate(model, examples, labels):
    model.compile(metrics=metrics_for(labels))
    results = model.evaluate(
        inputs_of(examples),
        ids_of(examples, labels),
        batch_size=FLAGS.eval_batch_size,
        return_dict=True,
    )
    lines = [f"eval_{name} = {value:.6f}" for name, value in sorted(results.items())]
    with atomic_path(os.path.join(FLAGS.output_dir, "eval_results.txt")) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    print("***** Eval results *****", *lines, sep="\n")


def predict(model, examples):
    from bert_tf.training.threshold_sweep import softmax

    logits = model.predict(inputs_of(examples), batch_size=FLAGS.predict_batch_size)
    path = os.path.join(FLAGS.output_dir, f"{FLAGS.predict_split}_results.tsv")
    with atomic_path(path) as new:
        np.savetxt(new, softmax(logits), fmt="%.8f", delimiter="\t")
    print(f"{len(examples)} predictions in {path}; columns: {' '.join(model.labels)}")


def main():
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise UserError("At least one of --do_train, --do_eval or --do_predict was expected.")
    if FLAGS.do_train and not FLAGS.init_checkpoint:
        raise UserError("--do_train needs --init_checkpoint, the model to start from.")
    tool.require_writable(FLAGS.output_dir, "output_dir")
    import keras

    keras.utils.set_random_seed(FLAGS.seed)

    task = TASKS[FLAGS.task_name.lower()]
    labels = tuple(FLAGS.labels) if FLAGS.labels else task.labels
    train_examples = task.read(FLAGS.data_dir, "train", labels) if FLAGS.do_train else None
    if FLAGS.do_train and labels is None:
        labels = task.label_list(train_examples)
    model = load_model(labels)
    labels = tuple(model.labels)
    wants_dev = FLAGS.do_eval or (
        FLAGS.do_train and os.path.exists(os.path.join(FLAGS.data_dir, task.dev_file))
    )
    dev_examples = task.read(FLAGS.data_dir, "dev", labels) if wants_dev else None
    test_examples = task.read(FLAGS.data_dir, FLAGS.predict_split) if FLAGS.do_predict else None

    if FLAGS.do_train:
        train(model, train_examples, dev_examples, labels)
    if FLAGS.do_eval:
        evaluate(model, dev_examples, labels)
    if FLAGS.do_predict:
        predict(model, test_examples)


if __name__ == "__main__":
    flags.mark_flags_as_required(["task_name", "data_dir", "output_dir"])
    tool.run(main)
