"""The batches of run_pretraining: from TFRecord files, or from text that is masked again."""

import functools

from bert_tf.tools.common.checks import options_of
from bert_tf.tools.common.flag_table import FLAGS
from bert_tf.tools.common.pretraining_flags import NEXT_SENTENCE, reads_text


def open_batches(train_files, eval_files, strategy, tokenizer):
    """Returns the `DistributedBatches` for training and for evaluation.

    Readers open their files when they are created, so a bad file is reported before training.

    Args:
        train_files: The files of --input_file.
        eval_files: The files of the held-out examples.
        strategy: The strategy, which says how many devices there are.
        tokenizer: The tokenizer of --vocab_file; None if the files have ids.
    """
    masker = tokenizer if reads_text() else None
    train_batches = _batches_of(train_files, FLAGS.train_batch_size, strategy, masker, True)
    eval_batches = _batches_of(eval_files, FLAGS.eval_batch_size, strategy, masker, False)
    if FLAGS.do_train:
        train_batches.from_step(0)
    if FLAGS.do_eval:
        eval_batches.from_step(0)
    return train_batches, eval_batches


def _batches_of(files, batch_size, strategy, tokenizer, training):
    """Returns `DistributedBatches`: shuffled and repeated for training, in file order otherwise."""
    from bert_tf.tasks.pretraining.records import pretraining_records
    from bert_tf.tasks.pretraining.text import pretraining_text
    from bert_tf.text import jieba_segmenter
    from bert_tf.training.distribution.distributed_batches import DistributedBatches

    options = options_of("max_seq_length", "max_predictions_per_seq", "seed")
    # All devices must get the same number of batches.
    options["repeat"] = training or strategy.num_replicas_in_sync > 1
    if tokenizer:
        make = functools.partial(pretraining_text, files, tokenizer)
        options |= options_of("masked_lm_prob", "short_seq_prob")
        options |= {
            "masking": "whole_word" if FLAGS.whole_word_mask else FLAGS.masking,
            "next_sentence": NEXT_SENTENCE[FLAGS.objective],
            "packing": "rows" if FLAGS.pack_rows else None,
            "segmenter": jieba_segmenter() if FLAGS.segmenter else None,
        }
    else:
        make = functools.partial(pretraining_records, files)
        options |= {"shuffle": training, "shuffle_buffer": FLAGS.shuffle_buffer}

    def read(batch_size, start_step, num_shards, shard_index):
        part = {"num_shards": num_shards, "shard_index": shard_index}
        return make(batch_size, start_step=start_step, **part, **options)

    return DistributedBatches(
        read,
        batch_size,
        strategy,
        # All readers of text know the lengths of all rows, and make only their own.
        deals=tokenizer is not None,
        by_rows=FLAGS.input_sharding == "rows",
        lengths=_lengths,
        parts=FLAGS.gradient_accumulation_steps if training else 1,
        num_batches=None if training else FLAGS.max_eval_steps,
    )


def _lengths(features, labels):
    """Returns the number of tokens of each row, int64 `[B]`."""
    import tensorflow as tf

    return tf.math.count_nonzero(features["padding_mask"], axis=1)
