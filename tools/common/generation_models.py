"""Builds models that write texts, as the flags of `generation_flags` say."""

import os

from bert_tf.errors import user_error
from bert_tf.tools.common import checkpoint_flags, workers
from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.generation_flags import decoding_options


def load_writer():
    """Returns the model of --architecture to train, or the trained one."""
    import keras

    with workers.strategy().scope():
        keras.utils.set_random_seed(FLAGS.seed)
        model = _trained_model() if not FLAGS.do_train else _model_to_train()
    model.generation_options(**decoding_options())  # refuses what the model cannot do
    return model


def load_extractor():
    """Returns the `BertSentenceExtractor` to train, or the trained one."""
    from bert_tf import BertSentenceExtractor

    options = options_of("num_sentences", "trigram_blocking", max_length="max_source_length")
    return checkpoint_flags.load_model(BertSentenceExtractor, **options)


def write(model, sources, verbose=0):
    """Returns the text that the model writes for each source."""
    options = {"batch_size": FLAGS.predict_batch_size, "verbose": verbose}
    if hasattr(model, "generate"):
        return model.generate(sources, **decoding_options(), **options)
    return model.summarize(sources, **options)


def examples_of(model, sources, targets):
    """Returns what `fit` and `evaluate` take: `x` and `y`."""
    if hasattr(model, "generate"):
        return (sources, targets), None
    preprocessor = model.preprocessor
    return sources, preprocessor.targets(targets, preprocessor.read_columns(sources))


def _trained_model():
    """Returns the model in --output_dir, unless --init_checkpoint is a trained one."""
    path = FLAGS.init_checkpoint
    is_trained = path and _is_of_architecture(path)
    return _opened(path if is_trained else os.path.join(FLAGS.output_dir, "model"))


def _model_to_train():
    if FLAGS.bert_config_file:
        return _new_model()
    path = FLAGS.init_checkpoint
    if FLAGS.architecture == "prefix_lm":
        return _opened(path)
    if path and _is_of_architecture(path):
        given = [f"--{name}" for name in _network_options() if FLAGS[name].present]
        if given:
            expected = "not be set with an encoder-decoder model, which has its own"
            raise user_error(", ".join(given), expected, f"--init_checkpoint={path}")
        return _opened(path)
    encoder, decoder = FLAGS.encoder or path, FLAGS.decoder or path
    return _model_class().from_encoder_decoder_pretrained(
        encoder,
        decoder,
        tokenizer=checkpoint_flags.load_tokenizer(encoder),
        **_network_options(),
        **_lengths(),
    )


def _new_model():
    """Returns a model with random weights."""
    from bert_tf import BertBackbone, BertConfig

    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    tokenizer = checkpoint_flags.new_tokenizer()
    checkpoint_flags.require_vocabulary_of(config, tokenizer)
    options = {"tokenizer": tokenizer, **_lengths()}
    if FLAGS.architecture == "encoder_decoder":
        options.update(_network_options())
        if FLAGS.decoder_config_file:
            options["decoder_config"] = BertConfig.from_json_file(FLAGS.decoder_config_file)
    return _model_class()(BertBackbone(config), **options)


def _opened(path):
    tokenizer = checkpoint_flags.load_tokenizer(path)
    return _model_class().from_pretrained(path, tokenizer=tokenizer, **_lengths())


def _is_of_architecture(path):
    from bert_tf.checkpoints.opening import open_pretrained

    return open_pretrained(path).class_name == _model_class().__name__


def _model_class():
    from bert_tf import BertEncoderDecoder, BertPrefixLM

    return {"encoder_decoder": BertEncoderDecoder, "prefix_lm": BertPrefixLM}[FLAGS.architecture]


def _lengths():
    return options_of("max_target_length", max_length="max_source_length")


def _network_options():
    return options_of("tie_word_embeddings", "share_encoder_decoder_weights")
