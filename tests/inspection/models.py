"""Tiny models to inspect, whose weights are far from zero."""

import keras

from bert_tf import BertBackbone, BertTokenizer


def make(kind, config, vocabulary, seed=3, **options):
    """A model of a class with random weights and biases."""
    keras.utils.set_random_seed(seed)
    tokenizer = BertTokenizer(vocabulary, lowercase=False)
    if kind.__name__ != "BertPretrainer":
        options["tokenizer"] = tokenizer
    model = kind(BertBackbone(config), **options)
    for variable in model.trainable_variables:
        variable.assign_add(keras.random.normal(variable.shape, stddev=0.2))
    return model
