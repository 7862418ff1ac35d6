"""Writes TFRecord files of pre-training examples for tests."""

import tensorflow as tf

from bert_tf.tasks.pretraining.chunk_examples import example_features, serialize_features


def write_pretraining_records(path, examples, max_seq_length, max_predictions_per_seq):
    """Writes examples, padded to the given sizes."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            features = example_features(example, max_seq_length, max_predictions_per_seq)
            writer.write(serialize_features(features))
