"""What --init_checkpoint, --vocab_file and --do_lower_case mean, the same in every tool."""

import os

from absl import flags

FLAGS = flags.FLAGS


def load_model(model_class, **options):
    """The model to start from; without --do_train a trained one.

    Matches google-research/bert: where nothing is trained and --init_checkpoint is the one that
    training began with, the model in --output_dir works.

    Args:
        model_class: The class of the model.
        **options: Of `from_pretrained`.
    """
    trained = os.path.join(FLAGS.output_dir, "model")
    path = FLAGS.init_checkpoint or trained
    model = _open(model_class, path, options)
    if FLAGS.do_train:
        return model
    if model.untrained_heads and path != trained and os.path.isdir(trained):
        print(f"{path} has no {' and '.join(model.untrained_heads)}; {trained} is taken.")
        model = _open(model_class, trained, options)
    model.require_trained_heads("evaluated")
    return model


def _open(model_class, path, options):
    return model_class.from_pretrained(
        path, config_file=FLAGS.bert_config_file, tokenizer=load_tokenizer(path), **options
    )


def load_tokenizer(path):
    """The tokenizer of a checkpoint where flags change it; None: take it as the files say.

    Args:
        path: What --init_checkpoint names.
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
    """The tokenizer of --vocab_file alone, for a model that is trained from nothing."""
    from bert_tf.text import tokenizer_files
    from bert_tf.text.tokenizer import BertTokenizer

    tokenizer = BertTokenizer(FLAGS.vocab_file, lowercase=FLAGS.do_lower_case, **options)
    given = FLAGS["do_lower_case"].present
    tokenizer_files.check_case(
        tokenizer.vocabulary, FLAGS.do_lower_case if given else None, bool(given)
    )
    return tokenizer


def directory_of(path):
    """The directory with the files of a checkpoint."""
    from bert_tf.checkpoints.opening import resolve

    path = resolve(path)
    return path if os.path.isdir(path) else os.path.dirname(path) or "."
