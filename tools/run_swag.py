r"""Fine-tunes a BERT multiple choice model on SWAG, evaluates it and predicts with it.

    bert-tf run_swag --data_dir=swag --init_checkpoint=uncased_L-12_H-768_A-12 \
      --do_train --do_eval --output_dir=out

Reads train.csv, val.csv and test.csv in --data_dir, with the columns of SWAG: sent1, sent2,
ending0 to ending3, and label (not needed in test.csv). Any multiple choice data set with these
columns works.

The tool writes to --output_dir:

    model/              the trained model: a Hugging Face directory with tokenizer
    checkpoints/        from which the same command resumes a killed run, but not with --keep_best
    eval_results.txt    the scores of val.csv
    test_results.tsv    one line per example: the chosen ending, counted from 0, and the four
                        probabilities, separated by tabs
    lora.safetensors    the LoRA weights, with --lora_rank
"""

import os

import numpy as np

from bert_tf.tasks.multiple_choice.files import read_swag
from bert_tf.tools.common import (
    checkpoint_flags,
    fine_tuning,
    fine_tuning_flags,
    result_files,
    tool,
    workers,
)
from bert_tf.tools.common.console import predicting_verbose, print_model
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun

define_flags("""
    data_dir (str): The directory with train.csv, val.csv and test.csv.
""")
checkpoint_flags.define_start()
define_flags("""
    max_seq_length (int, 128): Maximum length of a pair in tokens; the longer text of a longer pair
        is truncated.
    do_eval (bool, false): Whether to evaluate the model on val.csv.
    do_predict (bool, false): Whether to write predictions for test.csv.
""")
fine_tuning_flags.define_training("examples of four pairs each", batch_size=16, learning_rate=2e-5)
define_flags("""
    eval_batch_size (int >= 1, 8): Batch size for evaluation, in examples.
""")
fine_tuning_flags.define_epoch_flags("val_accuracy or val_loss")


def inputs_of(examples):
    return [example.prompt for example in examples], [example.choices for example in examples]


def labels_of(examples):
    return np.array([example.label for example in examples], np.int32)


def train(model, train_examples, dev_examples):
    batches = TrainingBatches(model, inputs_of(train_examples), labels_of(train_examples))
    dev = (inputs_of(dev_examples), labels_of(dev_examples)) if dev_examples else None
    options = {"loss": fine_tuning.class_loss(), "metrics": ["accuracy"]}
    fine_tuning.compile_model(model, batches.num_steps, **options)
    TrainingRun(model, batches, ("data_dir", "init_checkpoint")).fit(validation_data=dev)
    fine_tuning.save_model(model)


def evaluate(model, examples):
    with model.distribute_strategy.scope():
        model.compile(metrics=["accuracy"])
    options = {"batch_size": FLAGS.eval_batch_size, "verbose": predicting_verbose()}
    results = model.evaluate(inputs_of(examples), labels_of(examples), return_dict=True, **options)
    result_files.report(result_files.score_lines(results))


def predict(model, examples):
    from bert_tf.training.evaluation.probabilities import softmax

    probabilities = softmax(model.predict(inputs_of(examples), verbose=predicting_verbose()))
    path = os.path.join(FLAGS.output_dir, "test_results.tsv")
    rows = np.column_stack([probabilities.argmax(axis=1), probabilities])
    result_files.write_table(path, rows, fmt=["%d", *["%.8f"] * probabilities.shape[1]])
    print(f"{len(examples)} predictions in {path}")


def main():
    has_val = FLAGS.do_train and os.path.exists(os.path.join(FLAGS.data_dir, "val.csv"))
    fine_tuning_flags.check_flags(has_dev=FLAGS.do_eval or has_val)
    tool.require_writable(FLAGS.output_dir, "output_dir")

    def read(name, labels=True):
        return read_swag(os.path.join(FLAGS.data_dir, name), labels)

    train_examples = read("train.csv") if FLAGS.do_train else None
    dev_examples = read("val.csv") if FLAGS.do_eval or has_val else None
    test_examples = read("test.csv", labels=False) if FLAGS.do_predict else None
    from bert_tf.tasks.multiple_choice.model import BertMultipleChoice

    model = checkpoint_flags.load_model(BertMultipleChoice, max_length=FLAGS.max_seq_length)
    if FLAGS.do_train:
        train(model, train_examples, dev_examples)
    if FLAGS.do_eval:
        evaluate(model, dev_examples)
    if FLAGS.do_predict:
        predict(model, test_examples)
    if FLAGS.do_train:
        print_model()


if __name__ == "__main__":
    tool.run(workers.run(main), "data_dir", "output_dir")
