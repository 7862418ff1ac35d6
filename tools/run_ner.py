r"""Trains, evaluates and runs a BERT tagger on CoNLL columns or word/tag text.

    python tools/run_ner.py --data_dir=conll2003 --init_checkpoint=cased_L-12_H-768_A-12 \
      --do_lower_case=false --do_train --do_eval --do_predict --output_dir=out

Sentences longer than --max_seq_length are cut at word borders and put together again. In
--output_dir: `model/` (a Hugging Face directory with tokenizer and labels), `eval_results.txt` and
`test_results.txt` (accuracy over words; precision, recall and F1 of whole spans, by seqeval),
`test_predictions.txt` (word, gold tag where the file has one, predicted tag: what conlleval.pl
and tools/evaluate.py --kind=tags read), with --lora_rank also `lora.safetensors`.
"""

import os

from absl import flags
from common import checkpoint_flags, fine_tuning

from bert_tf import tool
from bert_tf.errors import DataError, UserError
from bert_tf.files import atomic_path
from bert_tf.tasks.token_classification.files import FORMATS, conll_lines, read_tagged_text
from bert_tf.tasks.token_classification.tag_schemes import (
    OUTSIDE,
    SCHEMES,
    are_span_tags,
    convert_tags,
    scheme_labels,
    spans_of_tags,
)

FLAGS = flags.FLAGS

flags.DEFINE_string("data_dir", None, "The directory with train.txt, dev.txt and test.txt.")
flags.DEFINE_string("train_file", None, "The file to train on. Default: train.txt of --data_dir.")
flags.DEFINE_string("dev_file", None, "The file to evaluate on. Default: dev.txt of --data_dir.")
flags.DEFINE_string("test_file", None, "The file to tag. Default: test.txt of --data_dir.")
flags.DEFINE_enum("format", "conll", FORMATS, "A word a line in columns, or word/tag text.")
flags.DEFINE_integer("word_column", 0, "For --format=conll: the column of the words, from 0.")
flags.DEFINE_integer("tag_column", -1, "For --format=conll: that of the tags; -1 is the last.")
flags.DEFINE_enum(
    "scheme",
    "IOB2",
    [*SCHEMES, "none"],
    "The scheme that the model learns and writes; files may be in any of them. `none`: tags are "
    "names of single words, as parts of speech.",
)
flags.DEFINE_list(
    "labels", None, "The tags in the order of their ids. Default: all that --train_file implies."
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
flags.DEFINE_integer("max_seq_length", 128, "Longest window in tokens.")
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on the dev file.")
flags.DEFINE_bool("do_predict", False, "Whether to tag the test file.")
flags.DEFINE_bool("use_crf", False, "Whether a linear-chain CRF chooses the tags of a sentence.")
flags.DEFINE_integer("num_encoder_layers", None, "Use only the first k encoder blocks.")
flags.DEFINE_float(
    "classifier_dropout", None, "Dropout before the classifier. Default: as the config says."
)
flags.DEFINE_integer("train_batch_size", 32, "Batch size for training.", lower_bound=1)
flags.DEFINE_float("learning_rate", 5e-5, "The peak learning rate of Adam.", lower_bound=0.0)
flags.DEFINE_float(
    "crf_learning_rate",
    None,
    "The same for the CRF's transitions. Default: 100 times --learning_rate.",
    lower_bound=0.0,
)
flags.DEFINE_float("num_train_epochs", 3.0, "Epochs of training.", lower_bound=0.0)
flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the training steps over which the learning rate rises.",
    lower_bound=0.0,
    upper_bound=1.0,
)
fine_tuning.define_class_weights()
fine_tuning.define_epoch_flags("val_f1 or, for --scheme=none, val_word_accuracy")
flags.DEFINE_bool("bias_correction", False, "Adam with bias correction (the original has none).")
flags.DEFINE_integer("seed", 12345, "Seed of the head, the shuffling and the dropout.")


def read(split):
    """The words and, in the model's scheme, the tags of one file; no tags where it has none."""
    path = getattr(FLAGS, f"{split}_file")
    if path is None:
        if FLAGS.data_dir is None:
            raise UserError(f"--data_dir or --{split}_file was expected. Received: neither.")
        path = os.path.join(FLAGS.data_dir, f"{split}.txt")
    columns = {}
    if FLAGS.format == "conll":
        columns = {"word_column": FLAGS.word_column, "tag_column": FLAGS.tag_column}
    sentences = read_tagged_text(path, FLAGS.format, **columns)
    words = [sentence.words for sentence in sentences]
    tags = [sentence.tags for sentence in sentences]
    if tags[0] is None:
        if split != "test":
            raise DataError(f"{path}: a tag was expected for every word. Received: words alone")
        return words, None
    if FLAGS.scheme == "none":
        return words, tags
    try:
        return words, [convert_tags(row, FLAGS.scheme) for row in tags]
    except DataError as error:
        raise DataError(f"{path}: {error} For those: --scheme=none") from None


def label_list(tags):
    """Every tag that the scheme has for the labels that occur; without one, the tags themselves."""
    if FLAGS.labels:
        return FLAGS.labels
    if FLAGS.scheme == "none":
        return sorted({tag for row in tags for tag in row})
    spans = (span for row in tags for span in spans_of_tags(row))
    return scheme_labels(sorted({span.label for span in spans}), FLAGS.scheme)


def load_model(labels):
    """The model to start from, with everything about it checked."""
    from bert_tf.tasks.token_classification.model import BertTokenClassifier

    options = {"labels": list(labels)} if labels else {}
    if FLAGS.do_train:
        options["use_crf"] = FLAGS.use_crf
        options["num_encoder_layers"] = FLAGS.num_encoder_layers
        if FLAGS.classifier_dropout is not None:
            options["dropout"] = FLAGS.classifier_dropout
    return checkpoint_flags.load_model(
        BertTokenClassifier, max_length=FLAGS.max_seq_length, **options
    )


def train(model, data, dev):
    from bert_tf.tasks.token_classification import TaggingScores
    from bert_tf.tasks.token_classification.word_windows import WordWindows

    words, tags = data
    num_rows = len(WordWindows(model.tokenizer, words, FLAGS.max_seq_length))
    steps_per_epoch = -(-num_rows // FLAGS.train_batch_size)
    num_steps = max(1, int(steps_per_epoch * FLAGS.num_train_epochs))
    schedule = fine_tuning.schedule(num_steps)
    multipliers = {}
    if FLAGS.use_crf:
        ratio = 100.0
        if FLAGS.crf_learning_rate is not None:
            ratio = FLAGS.crf_learning_rate / FLAGS.learning_rate
        multipliers["crf"] = ratio
    loss = "auto"
    if fine_tuning.changes_loss():
        ids = {label: index for index, label in enumerate(model.labels)}
        loss = fine_tuning.class_loss([ids[tag] for row in tags for tag in row], len(ids))
    fine_tuning.prepare_model(model)
    model.compile(
        fine_tuning.optimizer(
            schedule, bias_correction=FLAGS.bias_correction, learning_rate_multipliers=multipliers
        ),
        loss,
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
    )
    scores = [] if dev is None else [TaggingScores(*dev)]
    options = {"batch_size": FLAGS.train_batch_size, "callbacks": scores + fine_tuning.callbacks()}
    epochs, rest = divmod(num_steps, steps_per_epoch)
    if epochs:
        model.fit(words, tags, epochs=epochs, **options)
    if rest:  # --num_train_epochs with a fraction
        model.fit(
            words, tags, initial_epoch=epochs, epochs=epochs + 1, steps_per_epoch=rest, **options
        )
    fine_tuning.finish_model(model)
    model.save_pretrained(os.path.join(FLAGS.output_dir, "model"))


def report(name, gold, predicted, labels):
    """Writes and prints the scores of one file."""
    from bert_tf.tasks.token_classification import metrics as tagging_scores

    unknown = sorted({tag for row in gold for tag in row} - set(labels))
    if unknown:
        count = sum(tag in unknown for row in gold for tag in row)
        print(
            f"{count} words have tags that the model does not know, counted as its errors: "
            f"{' '.join(unknown)}"
        )
    scores = tagging_scores(gold, predicted)
    lines = [f"{name}_{key} = {value:.6f}" for key, value in scores.items()]
    write(f"{name}_results.txt", "\n".join(lines) + "\n")
    print(f"***** {name.capitalize()} results *****", *lines, sep="\n")


def write(name, text):
    with atomic_path(os.path.join(FLAGS.output_dir, name)) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def main():
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise UserError("At least one of --do_train, --do_eval or --do_predict was expected.")
    if FLAGS.do_train and not FLAGS.init_checkpoint:
        raise UserError("--do_train needs --init_checkpoint, the model to start from.")
    fine_tuning.check_flags(has_dev=FLAGS.do_eval)
    if FLAGS.use_crf and fine_tuning.changes_loss():
        raise UserError(
            "--label_smoothing, --focal_gamma and --class_weights change the loss of "
            "each word; --use_crf has one over whole sentences. Choose one of both."
        )
    tool.require_writable(FLAGS.output_dir, "output_dir")
    data = read("train") if FLAGS.do_train else None
    dev = read("dev") if FLAGS.do_eval else None
    test = read("test") if FLAGS.do_predict else None
    import keras

    keras.utils.set_random_seed(FLAGS.seed)

    model = load_model(label_list(data[1]) if data else FLAGS.labels)
    if FLAGS.scheme != "none" and not are_span_tags(model.labels):
        raise UserError(
            f"Labels of the scheme {FLAGS.scheme} were expected, as {OUTSIDE} and B-PER. Received: "
            f"{model.labels}. For tags of single words: --scheme=none"
        )
    if FLAGS.do_train:
        train(model, data, dev)
    if FLAGS.do_eval:
        words, gold = dev
        report("eval", gold, model.predict(words), model.labels)
    if FLAGS.do_predict:
        words, gold = test
        predicted = model.predict(words)
        if gold is not None:
            report("test", gold, predicted, model.labels)
        columns = (words, predicted) if gold is None else (words, gold, predicted)
        write("test_predictions.txt", "".join(conll_lines(zip(*columns))))


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_dir"])
    tool.run(main)
