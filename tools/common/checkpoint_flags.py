"""Loads models and tokenizers as --init_checkpoint, --vocab_file and --do_lower_case say."""

import os

from absl import flags

FLAGS = flags.FLAGS


def load_model(model_class, **options):
    """Loads the model to start from. Without --do_train it must be a trained model.

    Matches google-research/bert: without --do_train, --init_checkpoint may still name the
    checkpoint that the training started from; the trained model in --output_dir is then used.

    Args:
        model_class: The class of the model.
        **options: Passed to `from_pretrained`.
    """
    trained = os.path.join(FLAGS.output_dir, "model")
    path = FLAGS.init_checkpoint or trained
    model = _open(model_class, path, options)
    if FLAGS.do_train:
        return model
    if model.untrained_heads and path != trained and os.path.isdir(trained):
        print(f"{path} has no {' and '.join(model.untrained_heads)}; {trained} is used instead.")
        model = _open(model_class, trained, options)
    model.require_trained_heads("evaluated")
    return model


def _open(model_class, path, options):
    return model_class.from_pretrained(
        path, config_file=FLAGS.bert_config_file, tokenizer=load_tokenizer(path), **options
    )


def load_tokenizer(path):
    """Returns the checkpoint's tokenizer with the changes from the flags; None without changes.

    Args:
        path: The value of --init_checkpoint.
    """
    from bert_tf.text.tokenizer import BertTokenizer

    options = {}
    if FLAGS.vocab_file:
        options["vocabulary"] = FLAGS.vocab_file
    if FLAGS.do_lower_case is not None:
        options["lowercase"] = FLAGS.do_lower_case
    if not options:
        return None
    return BertTokenizer.from_pretrained(directory_of(path), **options)


def new_tokenizer(**options):
    """Creates a tokenizer from --vocab_file, for a model that is trained from scratch."""
    from bert_tf.text import tokenizer_files
    from bert_tf.text.tokenizer import BertTokenizer

    tokenizer = BertTokenizer(FLAGS.vocab_file, lowercase=FLAGS.do_lower_case, **options)
    given = FLAGS["do_lower_case"].present
    tokenizer_files.check_case(
        tokenizer.vocabulary, FLAGS.do_lower_case if given else None, bool(given)
    )
    return tokenizer


def directory_of(path):
    """Returns the directory that holds the files of a checkpoint."""
    from bert_tf.checkpoints.opening import resolve

    path = resolve(path)
    return path if os.path.isdir(path) else os.path.dirname(path) or "."
