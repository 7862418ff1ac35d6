"""The path with the greatest score is that of the model's own CRF."""

import numpy as np
import tensorflow as tf

import bert_tf
from research.combine_taggers import best_path


def test_best_path(tiny_config):
    rng = np.random.default_rng(0)
    labels = ["O", "B-x", "I-x"]
    model = bert_tf.BertTokenClassifier(
        bert_tf.BertBackbone(tiny_config), labels=labels, use_crf=True, preprocessor=None
    )
    for variable in model.crf.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))
    for length in (1, 2, 9):
        scores = rng.normal(size=[length, 3]).astype(np.float32)
        tags = model.crf(tf.constant(scores)[tf.newaxis], tf.ones([1, length], tf.bool))
        assert best_path(model, scores) == [labels[tag] for tag in tags.numpy()[0]]
