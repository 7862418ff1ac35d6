"""Builds models that write texts, as the flags of `generation_flags` say."""

import os

from absl import flags

from bert_tf.errors import UserError
from common import checkpoint_flags
from common.checks import options_of
from common.generation_flags import decoding_options
from common.optimizer_flags import set_mixed_precision

FLAGS = flags.FLAGS


def load_encoder_decoder():
    """Returns the `BertEncoderDecoder` to train, or the trained one."""
    import keras

    from bert_tf import BertEncoderDecoder

    set_mixed_precision()
    keras.utils.set_random_seed(FLAGS.seed)
    lengths = options_of("max_target_length", max_length="max_source_length")
    if not FLAGS.do_train:
        path = _trained_path()
        tokenizer = checkpoint_flags.load_tokenizer(path)
        model = BertEncoderDecoder.from_pretrained(path, tokenizer=tokenizer, **lengths)
    elif FLAGS.bert_config_file:
        model = _new_model(**_network_options(), **lengths)
    elif FLAGS.encoder or not _is_encoder_decoder(FLAGS.init_checkpoint):
        encoder = FLAGS.encoder or FLAGS.init_checkpoint
        decoder = FLAGS.decoder or FLAGS.init_checkpoint
        model = BertEncoderDecoder.from_encoder_decoder_pretrained(
            encoder,
            decoder,
            tokenizer=checkpoint_flags.load_tokenizer(encoder),
            **_network_options(),
            **lengths,
        )
    else:
        _refuse_network_options()
        path = FLAGS.init_checkpoint
        tokenizer = checkpoint_flags.load_tokenizer(path)
        model = BertEncoderDecoder.from_pretrained(path, tokenizer=tokenizer, **lengths)
    model.generation_options(**decoding_options())  # refuses what the model cannot do
    return model


def load_extractor():
    """Returns the `BertSentenceExtractor` to train, or the trained one."""
    from bert_tf import BertSentenceExtractor

    set_mixed_precision()
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


def _network_options():
    names = ("tie_word_embeddings", "share_encoder_decoder_weights")
    return {name: FLAGS[name].value for name in names}


def _refuse_network_options():
    given = [name for name in _network_options() if FLAGS[name].present]
    if given:
        raise UserError(
            f"{', '.join(f'--{name}' for name in given)} must not be set with an encoder-decoder "
            f"model, which has its own. Received: --init_checkpoint={FLAGS.init_checkpoint}"
        )


def _is_encoder_decoder(path):
    from bert_tf.checkpoints.opening import open_pretrained

    pretrained = open_pretrained(path)
    names = (pretrained.class_name, *pretrained.architectures)
    return "BertEncoderDecoder" in names or "EncoderDecoderModel" in names


def _trained_path():
    """Returns the path of the trained model: --init_checkpoint may be what it was trained from."""
    path = FLAGS.init_checkpoint
    return path if path and _is_encoder_decoder(path) else os.path.join(FLAGS.output_dir, "model")


def _new_model(**options):
    """Returns a model with random weights."""
    from bert_tf import BertBackbone, BertConfig, BertEncoderDecoder

    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    tokenizer = checkpoint_flags.new_tokenizer()
    checkpoint_flags.require_vocabulary_of(config, tokenizer)
    decoder_config = None
    if FLAGS.decoder_config_file:
        decoder_config = BertConfig.from_json_file(FLAGS.decoder_config_file)
    return BertEncoderDecoder(BertBackbone(config), decoder_config, tokenizer=tokenizer, **options)
