r"""Fine-tunes a BERT multiple choice model on SWAG, evaluates it and predicts with it.

    python tools/run_swag.py --data_dir=swag --init_checkpoint=uncased_L-12_H-768_A-12 \
      --do_train --do_eval --output_dir=out

Reads train.csv, val.csv and test.csv in --data_dir, with the columns of SWAG: sent1, sent2,
ending0 to ending3, and label (not needed in test.csv). Any multiple choice data set with these
columns works.

The tool writes to --output_dir:

    model/              the trained model: a Hugging Face directory with tokenizer
    eval_results.txt    the scores of val.csv
    test_results.tsv    one line per example: the chosen ending, counted from 0, and the four
                        probabilities, separated by tabs
    lora.safetensors    the LoRA weights, with --lora_rank
"""

import os

import numpy as np
from absl import flags
from common import checkpoint_flags, fine_tuning

from bert_tf import tool
from bert_tf.errors import UserError
from bert_tf.files import atomic_path
from bert_tf.tasks.multiple_choice.files import read_swag

FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "The directory with train.csv, val.csv and test.csv.")
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
    "max_seq_length",
    128,
    "Maximum length of a pair in tokens; the longer text of a longer pair is truncated.",
)
flags.DEFINE_bool("do_train", False, "Whether to train the model.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate the model on val.csv.")
flags.DEFINE_bool("do_predict", False, "Whether to write predictions for test.csv.")
flags.DEFINE_integer(
    "train_batch_size",
    16,
    "Batch size for training, in examples of four pairs each.",
    lower_bound=1,
)
flags.DEFINE_integer("eval_batch_size", 8, "Batch size for evaluation, in examples.", lower_bound=1)
flags.DEFINE_float("learning_rate", 2e-5, "The peak learning rate of Adam.", lower_bound=0.0)
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
fine_tuning.define_epoch_flags("val_accuracy or val_loss")
flags.DEFINE_bool(
    "bias_correction",
    False,
    "Whether Adam corrects the bias of its moments; the original does not.",
)
flags.DEFINE_integer("seed", 12345, "Seed of the head, the shuffling and the dropout.")


def load_model():
    """Loads the model to start from and checks it."""
    from bert_tf.tasks.multiple_choice.model import BertMultipleChoice

    return checkpoint_flags.load_model(BertMultipleChoice, max_length=FLAGS.max_seq_length)


def inputs_of(examples):
    """Returns the prompts and their choices, the inputs of `fit` and `predict`."""
    return [example.prompt for example in examples], [example.choices for example in examples]


def labels_of(examples):
    return np.array([example.label for example in examples], np.int32)


def train(model, train_examples, dev_examples):
    steps_per_epoch = -(-len(train_examples) // FLAGS.train_batch_size)
    num_steps = max(1, int(steps_per_epoch * FLAGS.num_train_epochs))
    schedule = fine_tuning.schedule(num_steps)
    fine_tuning.prepare_model(model)
    model.compile(
        fine_tuning.optimizer(schedule, bias_correction=FLAGS.bias_correction),
        fine_tuning.class_loss(),
        metrics=["accuracy"],
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
    )
    options = {"batch_size": FLAGS.train_batch_size, "callbacks": fine_tuning.callbacks()}
    if dev_examples:
        options["validation_data"] = inputs_of(dev_examples), labels_of(dev_examples)
    x, y = inputs_of(train_examples), labels_of(train_examples)
    epochs, rest = divmod(num_steps, steps_per_epoch)
    if epochs:
        model.fit(x, y, epochs=epochs, **options)
    if rest:  # --num_train_epochs with a fraction
        model.fit(x, y, initial_epoch=epochs, epochs=epochs + 1, steps_per_epoch=rest, **options)
    fine_tuning.finish_model(model)
    model.save_pretrained(os.path.join(FLAGS.output_dir, "model"))


def evaluate(model, examples):
    model.compile(metrics=["accuracy"])
    results = model.evaluate(
        inputs_of(examples), labels_of(examples), batch_size=FLAGS.eval_batch_size, return_dict=True
    )
    lines = [f"eval_{name} = {value:.6f}" for name, value in sorted(results.items())]
    with atomic_path(os.path.join(FLAGS.output_dir, "eval_results.txt")) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    print("***** Eval results *****", *lines, sep="\n")


def predict(model, examples):
    from bert_tf.training.callbacks.threshold_sweep import softmax

    probabilities = softmax(model.predict(inputs_of(examples)))
    path = os.path.join(FLAGS.output_dir, "test_results.tsv")
    with atomic_path(path) as new, open(new, "w", encoding="utf-8") as file:
        for row in probabilities:
            numbers = "\t".join(f"{value:.8f}" for value in row)
            file.write(f"{row.argmax()}\t{numbers}\n")
    print(f"{len(examples)} predictions in {path}")


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
    has_val = FLAGS.do_train and os.path.exists(os.path.join(FLAGS.data_dir, "val.csv"))
    fine_tuning.check_flags(has_dev=FLAGS.do_eval or has_val)
    tool.require_writable(FLAGS.output_dir, "output_dir")

    def read(name, labels=True):
        return read_swag(os.path.join(FLAGS.data_dir, name), labels)

    train_examples = read("train.csv") if FLAGS.do_train else None
    dev_examples = read("val.csv") if FLAGS.do_eval or has_val else None
    test_examples = read("test.csv", labels=False) if FLAGS.do_predict else None

    import keras

    keras.utils.set_random_seed(FLAGS.seed)
    model = load_model()
    if FLAGS.do_train:
        train(model, train_examples, dev_examples)
    if FLAGS.do_eval:
        evaluate(model, dev_examples)
    if FLAGS.do_predict:
        predict(model, test_examples)


if __name__ == "__main__":
    flags.mark_flags_as_required(["data_dir", "output_dir"])
    tool.run(main)
