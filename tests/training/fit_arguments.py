"""Calls what `fit` calls before Keras: the arguments that Keras gets."""

import inspect

import keras

from bert_tf.training.fit_data import fit_data


def fit_arguments(model, x, y=None, token_budget=None, **options):
    """All arguments of `keras.Model.fit` for those of a user."""
    call = inspect.signature(keras.Model.fit).bind(model, x, y, **options)
    call.apply_defaults()
    return fit_data(model, dict(call.arguments) | {"class_weight": None}, token_budget)
