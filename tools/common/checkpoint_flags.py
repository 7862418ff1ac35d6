"""Loads models and tokenizers as --init_checkpoint, --vocab_file and --do_lower_case say."""

import os

from bert_tf import tasks
from bert_tf.errors import user_error
from bert_tf.tools.common import workers
from bert_tf.tools.common.checks import flag_error, options_of, positive_integers
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Model to start from"),)


def exported_specs() -> dict[str, tasks.TaskSpec]:
    """Returns the specs of tasks that are exported, by name; also those of --import_modules."""
    return {spec.name: spec for spec in tasks.specs() if spec.serving}


def define_start():
    """Defines --do_train and the flags for the model to start from."""
    define_flags("""
        do_train (bool, false): Whether to train the model.
        init_checkpoint (str): The model to start from: a Hugging Face directory, a TF1 checkpoint
            directory, or the prefix of a TF1 checkpoint. Without --do_train: the trained model
            (default: the one in --output_dir).
    """)
    define_files()


def define_files():
    """Defines the flags for files in place of those next to the checkpoint."""
    define_flags("""
        bert_config_file (str): The config file. Default: the one next to the checkpoint.
        vocab_file (str): The vocabulary file. Default: the one next to the checkpoint.
        do_lower_case (bool): Whether to convert the text to lower case. Default: as the tokenizer's
            files say.
    """)


def define_head():
    """Defines the flags for a new classifier on the encoder."""
    define_flags("""
        num_encoder_layers (int): Use only this number of encoder blocks, from the first. Default:
            all blocks.
        classifier_dropout (float): Dropout rate before the classifier. Default: as the config file
            says.
        use_scalar_mix (bool): Whether the classifier takes a weighted sum of the embeddings and of
            the outputs of all blocks (ELMo), whose weights are trained, instead of the output of
            the last block. Default: as the model was trained; false for a new classifier.
        causal (bool): Whether tokens attend to earlier tokens only, for a model that was
            pre-trained from left to right. Default: as the config file says.
    """)
    define_lstm()


def define_lstm():
    """Defines the flags for an LSTM before the classifier."""
    define_flags("""
        lstm_units (list, []): Units of the LSTM layers between the encoder and the classifier,
            from the first layer to the last, such as 256 or 256,128. Default: as the model was
            trained; no LSTM for a new classifier.
        lstm_bidirectional (bool): With --lstm_units: whether the LSTMs read in both directions.
            Default: as the model was trained; true for a new classifier.
    """)


def head_options():
    names = ("num_encoder_layers", "causal", "use_scalar_mix")
    return lstm_options() | options_of(*names, dropout="classifier_dropout")


def lstm_options():
    lstm_units = {"lstm_units": units} if (units := positive_integers("lstm_units")) else {}
    return lstm_units | options_of("lstm_bidirectional")


def load_model(model_class, **options):
    """Seeds the random generators and loads the model to start from.

    Without --do_train it must be a trained model. Matches google-research/bert: --init_checkpoint
    may then still name the checkpoint that the training started from; the trained model in
    --output_dir is used in that case. `options` are passed to `from_pretrained`.
    """
    import keras

    def load(path):
        with workers.strategy().scope():
            return model_class.from_pretrained(
                path, config_file=FLAGS.bert_config_file, tokenizer=load_tokenizer(path), **options
            )

    keras.utils.set_random_seed(FLAGS.seed)
    path, *others = directories()
    model = load(path)
    if FLAGS.do_train:
        return model
    if model.untrained_heads and others:
        (trained,) = others
        print(f"{path} has no {' and '.join(model.untrained_heads)}; {trained} is used instead.")
        model = load(trained)
    model.require_trained_heads("evaluated")
    return model


def directories():
    """Returns the directory of the model to start from and, if it is another, the trained one's."""
    trained = os.path.join(FLAGS.output_dir, "model")
    path = FLAGS.init_checkpoint or trained
    return [path, trained] if path != trained and os.path.isdir(trained) else [path]


def load_tokenizer(path):
    """Returns the checkpoint's tokenizer with the changes from the flags; None without changes."""
    from bert_tf.text.tokenizer import BertTokenizer

    options = options_of(vocabulary="vocab_file", lowercase="do_lower_case")
    return BertTokenizer.from_pretrained(path, **options) if options else None


def new_tokenizer(**options):
    """Creates a tokenizer from --vocab_file, for a model that is trained from scratch."""
    from bert_tf.text import subword_definition, tokenizer_files
    from bert_tf.text.tokenizer import BertTokenizer

    if FLAGS.vocab_file.endswith(".json"):
        definition = subword_definition.read(FLAGS.vocab_file, any_kind=True)
        if subword_definition.is_subword(definition):
            return _new_subword_tokenizer(definition, **options)
    if "vocab_segmenter" in FLAGS:
        options |= options_of(segmenter="vocab_segmenter")
    tokenizer = BertTokenizer(FLAGS.vocab_file, lowercase=FLAGS.do_lower_case, **options)
    lowercase = FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None
    tokenizer_files.check_case(tokenizer.vocabulary, lowercase)
    return tokenizer


def _new_subword_tokenizer(definition, **options):
    from bert_tf.errors import naming
    from bert_tf.text import SubwordTokenizer

    for name in ("do_lower_case", "vocab_segmenter"):
        if name in FLAGS and FLAGS[name].present:
            rule = "must be left out with byte pairs or a Unigram model, whose file has its rules"
            raise flag_error(name, rule, "vocab_file")
    with naming(FLAGS.vocab_file):
        return SubwordTokenizer(definition, **options)


def require_vocabulary_of(config, tokenizer):
    """Requires that --vocab_file has as many entries as --bert_config_file says."""
    if tokenizer.vocab_size != config.vocab_size:
        expected = f"have {config.vocab_size} entries, the vocab_size of {FLAGS.bert_config_file}"
        received = f"--vocab_file={FLAGS.vocab_file} with {tokenizer.vocab_size}"
        raise user_error("--vocab_file", expected, received)
