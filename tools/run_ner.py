r"""Trains a BERT token classifier on tagged text, evaluates it and tags text with it.

    bert-tf run_ner --data_dir=conll2003 --init_checkpoint=cased_L-12_H-768_A-12 \
      --do_lower_case=false --do_train --do_eval --do_predict --output_dir=out

The files are CoNLL columns or word/tag text. Sentences longer than --max_seq_length are split at
word boundaries into windows, and the tags of the windows are joined again.

The tool writes to --output_dir:

    model/                  the trained model: a Hugging Face directory with tokenizer and labels
    checkpoints/            from which the same command resumes a killed run, but not with
                            --keep_best
    eval_results.txt        the scores of the dev file: accuracy of words, and seqeval's precision,
                            recall and F1 of spans
    test_results.txt        the same scores of the test file, if it has tags
    test_predictions.txt    words, gold tags (if any) and predicted tags in columns, for
                            conlleval.pl and bert-tf evaluate --kind=tags
    lora.safetensors        the LoRA weights, with --lora_rank
"""

import os

from bert_tf.errors import DataError, UserError, user_error
from bert_tf.tasks.token_classification.files import TAG_FILE_FORMATS, conll_lines, read_tagged_text
from bert_tf.tasks.token_classification.tag_schemes import (
    OUTSIDE,
    SCHEMES,
    are_span_tags,
    convert_tags,
    scheme_labels,
    spans_of_tags,
)
from bert_tf.tools.common import (
    checkpoint_flags,
    fine_tuning,
    fine_tuning_flags,
    result_files,
    tool,
    workers,
)
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.console import print_model, print_result
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.training_run import TrainingBatches, TrainingRun

define_flags(f"""
    data_dir (str): The directory with train.txt, dev.txt and test.txt.
    train_file (str): The file to train on. Default: train.txt in --data_dir.
    dev_file (str): The file to evaluate on. Default: dev.txt in --data_dir.
    test_file (str): The file to tag. Default: test.txt in --data_dir.
    format ({"|".join(TAG_FILE_FORMATS)}, conll): The file format: one word per line in columns, or
        word/tag text.
    word_column (int, 0): With --format=conll: the column of the words, counted from 0.
    tag_column (int, {-1}): With --format=conll: the column of the tags, counted from 0; -1 is the
        last.
    scheme ({"|".join(SCHEMES)}|none, IOB2): The tagging scheme that the model learns and writes;
        the files may use any of them. `none`: the tags are labels of single words, such as parts of
        speech.
    labels (list): The tags in the order of their ids, separated by commas. Default: the tags that
        the scheme has for the labels in --train_file.
""")
checkpoint_flags.define_start()
define_flags("""
    max_seq_length (int, 128): Maximum length of a window in tokens.
    do_eval (bool, false): Whether to evaluate the model on the dev file.
    do_predict (bool, false): Whether to tag the test file.
    precision (auto|float32|bfloat16|int8): Without --do_train: the model is optimized for inference
        in this precision before it tags.
    use_crf (bool, false): Whether a linear-chain CRF chooses the tags of each sentence.
    space_before_all_words (bool): For a vocabulary with `▁` for spaces: whether all words are read
        with a space before them, as Hugging Face does, also Chinese, Japanese and Thai ones.
        Default: as the model was trained; false for a new classifier.
""")
checkpoint_flags.define_head()
fine_tuning_flags.define_training(batch_of="windows")
define_flags("""
    crf_learning_rate (float >= 0): With --use_crf: the peak learning rate of the CRF's transitions.
        Default: 100 times --learning_rate.
""")
fine_tuning_flags.define_class_weights()
fine_tuning_flags.define_epoch_flags("val_f1 or, for --scheme=none, val_word_accuracy")


def read(split):
    """Returns the words of a file and its tags in the model's scheme, or None without tags."""
    path = getattr(FLAGS, f"{split}_file")
    if path is None:
        if FLAGS.data_dir is None:
            raise UserError(f"--data_dir or --{split}_file must be set. Received: neither")
        path = os.path.join(FLAGS.data_dir, f"{split}.txt")
    columns = {"word_column": FLAGS.word_column, "tag_column": FLAGS.tag_column}
    words, tags = map(list, zip(*read_tagged_text(path, FLAGS.format, **columns)))
    if tags[0] is None:
        if split != "test":
            raise DataError(f"{path} must have a tag for every word. Received: words without tags")
        return words, None
    if FLAGS.scheme == "none":
        return words, tags
    try:
        return words, [convert_tags(row, FLAGS.scheme) for row in tags]
    except DataError as error:
        raise DataError(f"{path}: {error} For tags of single words, set --scheme=none") from None


def label_list(tags):
    """Returns --labels, or all tags that the scheme has for the labels in the training data."""
    found = {tag for row in tags for tag in row}
    if FLAGS.labels:
        if unknown := sorted(found.difference(FLAGS.labels)):
            received = f"none of {unknown}"
            raise user_error("--labels", "have all tags of the training data", received, DataError)
        return FLAGS.labels
    if FLAGS.scheme == "none":
        return sorted(found)
    spans = (span for row in tags for span in spans_of_tags(row))
    return scheme_labels(sorted({span.label for span in spans}), FLAGS.scheme)


def check_labels(labels):
    """Refuses labels that are no tags of --scheme."""
    if FLAGS.scheme != "none" and not are_span_tags(labels):
        expected = f"be tags of the scheme {FLAGS.scheme}, such as {OUTSIDE} and B-PER"
        received = f"{labels}. For tags of single words, set --scheme=none"
        raise user_error("The labels", expected, received)


def load_model(labels):
    from bert_tf.tasks.token_classification.model import BertTokenClassifier

    options = {"labels": list(labels)} if labels else {}
    if FLAGS.do_train:
        options |= {"use_crf": FLAGS.use_crf, **checkpoint_flags.head_options()}
    options |= {"max_length": FLAGS.max_seq_length, **options_of("space_before_all_words")}
    return checkpoint_flags.load_model(BertTokenClassifier, **options)


def train(model, data, dev):
    from bert_tf.tasks.token_classification import TaggingScores

    words, tags = data
    batches = TrainingBatches(model, words, tags)
    multipliers = {}
    if FLAGS.use_crf:
        rate = FLAGS.crf_learning_rate
        multipliers["crf"] = 100.0 if rate is None else rate / FLAGS.learning_rate
    loss = "auto"
    if fine_tuning_flags.changes_loss():
        ids = {label: index for index, label in enumerate(model.labels)}
        loss = fine_tuning.class_loss([ids[tag] for row in tags for tag in row], len(ids))
    options = {"learning_rate_multipliers": multipliers, "loss": loss}
    fine_tuning.compile_model(model, batches.num_steps, **options)
    run = TrainingRun(model, batches, ("data_dir", "train_file", "init_checkpoint", "scheme"))
    run.fit([] if dev is None else [TaggingScores(*dev)])
    fine_tuning.save_model(model)


def report(name, gold, predicted, labels):
    from bert_tf.tasks.token_classification import tagging_scores

    unknown = sorted({tag for row in gold for tag in row} - set(labels))
    if unknown:
        count = sum(tag in unknown for row in gold for tag in row)
        print(
            f"{count} words have tags that the model does not know; they count as errors: "
            f"{' '.join(unknown)}"
        )
    scores = tagging_scores(gold, predicted)
    lines = [f"{name}_{key} = {value:.6f}" for key, value in scores.items()]
    result_files.report(lines, f"{name}_results.txt", name.capitalize())


def main():
    fine_tuning_flags.check_flags(has_dev=FLAGS.do_eval)
    if FLAGS.use_crf and fine_tuning_flags.changes_loss():
        raise UserError(
            "--use_crf must not be combined with --label_smoothing, --focal_gamma or "
            "--class_weights, which change the loss of each word: the loss of a CRF is over whole "
            "sentences. Received: both"
        )
    if FLAGS.precision and FLAGS.do_train:
        raise UserError(
            "--precision must not be combined with --do_train, because a model that is optimized "
            f"for inference cannot be saved. Received: --precision={FLAGS.precision}"
        )
    tool.require_writable(FLAGS.output_dir, "output_dir")
    if FLAGS.do_eval and FLAGS.scheme != "none":
        from bert_tf.tasks.token_classification.metrics import require_seqeval

        require_seqeval()
    data = read("train") if FLAGS.do_train else None
    dev = read("dev") if FLAGS.do_eval else None
    test = read("test") if FLAGS.do_predict else None
    labels = label_list(data[1]) if data else FLAGS.labels
    if labels:
        check_labels(labels)
    model = load_model(labels)
    check_labels(model.labels)
    if FLAGS.do_train:
        train(model, data, dev)
    if FLAGS.precision:
        if model.backbone.quantization is not None:
            raise UserError(
                "--precision must be used with a floating-point model. Received: "
                f"--precision={FLAGS.precision} and a model that is already quantized to "
                f"{model.backbone.quantization}"
            )
        model.optimize_for_inference(FLAGS.precision)
    if FLAGS.do_eval:
        words, gold = dev
        report("eval", gold, model.predict_tags(words), model.labels)
    if FLAGS.do_predict:
        words, gold = test
        predicted = model.predict_tags(words)
        if gold is not None:
            report("test", gold, predicted, model.labels)
        columns = (words, predicted) if gold is None else (words, gold, predicted)
        path = os.path.join(FLAGS.output_dir, "test_predictions.txt")
        result_files.write_text(path, conll_lines(zip(*columns)))
        print_result("tags", path)
    if FLAGS.do_train:
        print_model()


if __name__ == "__main__":
    tool.run(workers.run(main), "output_dir")
