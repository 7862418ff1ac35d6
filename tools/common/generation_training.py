"""Builds and trains models that write text, as the flags of `generation_flags` say."""

import os

from absl import flags

from common import checkpoint_flags, fine_tuning
from common.checks import options_of
from common.generation_flags import RECORDED
from common.optimizer_flags import set_mixed_precision
from common.training_batches import TrainingBatches, fit

FLAGS = flags.FLAGS


def load_model():
    """Returns the model to train, or the trained one."""
    import keras

    from bert_tf import BertEncoderDecoder

    set_mixed_precision()
    keras.utils.set_random_seed(FLAGS.seed)
    lengths = options_of("max_target_length", max_length="max_source_length")
    if FLAGS.bert_config_file:
        return _new_model(**lengths)
    new = {
        "tie_word_embeddings": FLAGS.tie_word_embeddings,
        "share_encoder_decoder_weights": FLAGS.share_encoder_decoder_weights,
    }
    start = FLAGS.init_checkpoint
    if FLAGS.encoder or not _is_encoder_decoder(start):
        encoder, decoder = FLAGS.encoder or start, FLAGS.decoder or start
        tokenizer = checkpoint_flags.load_tokenizer(encoder)
        return BertEncoderDecoder.from_encoder_decoder_pretrained(
            encoder, decoder, tokenizer=tokenizer, **lengths, **new
        )
    tokenizer = checkpoint_flags.load_tokenizer(start)
    return BertEncoderDecoder.from_pretrained(start, tokenizer=tokenizer, **lengths)


def _is_encoder_decoder(path):
    from bert_tf.checkpoints.opening import open_pretrained

    pretrained = open_pretrained(path)
    names = (pretrained.class_name, *pretrained.architectures)
    return "BertEncoderDecoder" in names or "EncoderDecoderModel" in names


def _new_model(**lengths):
    """Returns a model with random weights."""
    from bert_tf import BertBackbone, BertConfig, BertEncoderDecoder

    config = BertConfig.from_json_file(FLAGS.bert_config_file)
    tokenizer = checkpoint_flags.new_tokenizer()
    checkpoint_flags.require_vocabulary_of(config, tokenizer)
    decoder_config = None
    if FLAGS.decoder_config_file:
        decoder_config = BertConfig.from_json_file(FLAGS.decoder_config_file)
    return BertEncoderDecoder(
        BertBackbone(config),
        decoder_config,
        tie_word_embeddings=FLAGS.tie_word_embeddings,
        share_encoder_decoder_weights=FLAGS.share_encoder_decoder_weights,
        tokenizer=tokenizer,
        **lengths,
    )


def train(model, pairs, dev_pairs):
    """Trains the model from its newest checkpoint on, and saves it in --output_dir."""
    from bert_tf.training import callbacks
    from common.epoch_lines import EpochLines

    batches = TrainingBatches(model, pairs)
    fine_tuning.require_checkpoints_to_average(batches.num_steps)
    fine_tuning.compile_model(model, batches.num_steps, loss=fine_tuning.class_loss())
    checkpoint = fine_tuning.training_checkpoint(
        RECORDED, keep=FLAGS.keep_checkpoint_max, keep_scheduled=FLAGS.average_checkpoints
    )
    step = checkpoint.restore(model)
    print(
        f"{len(pairs[0])} pairs, {batches.tokens_per_step:.0f} tokens per step, "
        f"{batches.steps_per_epoch} steps per epoch, {batches.num_steps} steps"
    )
    if step >= batches.num_steps:
        print(f"Nothing is left to train: the newest checkpoint is of step {step}.")
    else:
        log = callbacks.JsonLines(os.path.join(FLAGS.output_dir, "log.jsonl"), step)
        examples_per_step = len(pairs[0]) / batches.steps_per_epoch
        watchers = [
            callbacks.ProgressLine(
                batches.num_steps, FLAGS.log_steps, ("loss", "perplexity"), initial_step=step
            ),
            callbacks.TrainingLog(FLAGS.log_steps, [log], examples_per_step, initial_step=step),
            EpochLines(batches.tokens_per_step),
            checkpoint,
            callbacks.StopOnSignal(checkpoint, initial_step=step),
        ]
        dev = {} if dev_pairs is None else {"validation_data": (dev_pairs,)}
        dev["validation_batch_size"] = FLAGS.eval_batch_size
        fit(model, batches, step, watchers, verbose=0, **dev)
    fine_tuning.average_last_checkpoints(checkpoint, model)
    fine_tuning.finish_model(model)
    model.save_pretrained(os.path.join(FLAGS.output_dir, "model"))
