"""Word embeddings for more or fewer tokens than a model was made with."""

import dataclasses
import numbers

import keras
import numpy as np

from bert_tf.adapt.layer_dropping import clone_with_config
from bert_tf.errors import UserError, require, user_error
from bert_tf.text.tokenizer_base import Tokenizer


def resize_token_embeddings(model, tokens: Tokenizer | int):
    """Returns a copy of a model with a word embedding for each token of another vocabulary.

    The first ids keep their vectors, bit by bit. The vector of a new one is the mean of all old
    ones, so that the model's probabilities hardly change before it is trained. All that has one
    value per token is resized: the table of the encoder and of a decoder, and the bias and the own
    table of the head of a language model.

    Args:
        model: A `BertBackbone` or a model with one. It is not changed.
        tokens: The new tokenizer, for example from `with_added_tokens`, which the copy then has; or
            the new number of tokens, for a model without a tokenizer.

    Returns:
        The copy, not compiled: the state of an optimizer fits the old number only.

    Raises:
        UserError: If the number is none, the tokenizer does not fit the model, or the model is
            quantized, prepacked, or has LoRA.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> tokenizer = classifier.tokenizer.with_added_tokens(["covid-19"])
        >>> classifier = bert_tf.adapt.resize_token_embeddings(classifier, tokenizer)
        >>> classifier.backbone.config.vocab_size == tokenizer.vocab_size
        True

    Reference: transformers `resize_token_embeddings`; Hewitt 2021, "Initializing new word
    embeddings for pretrained language models", for the mean.
    """
    backbone = getattr(model, "backbone", model)
    options, held = {}, getattr(model, "tokenizer", None)
    if isinstance(tokens, Tokenizer):
        size = tokens.vocab_size
        require(model is not backbone, "must be a number for a backbone", UserError, tokens=tokens)
        options["tokenizer"] = keras.saving.serialize_keras_object(tokens)
    else:
        is_size = isinstance(tokens, numbers.Integral) and not isinstance(tokens, bool)
        rule = "must be a tokenizer, or a positive number of tokens"
        require(is_size and tokens > 0, rule, UserError, tokens=tokens)
        size = int(tokens)
        if held is not None and size != backbone.config.vocab_size:
            expected = "be a tokenizer for a model that has one"
            raise user_error("`tokens`", expected, f"tokens={size}")
    backbone.require_kernels("given other word embeddings")
    if model is not backbone:
        model.require_merged("given other word embeddings")
    before = backbone.config.vocab_size
    if getattr(model, "decoder_config", None) is not None:
        decoder = model.decoder_config
        rule = f"must be {before}, that of the encoder, because both get new word embeddings"
        given = {"decoder_config.vocab_size": decoder.vocab_size}
        require(decoder.vocab_size == before, rule, UserError, **given)
        options["decoder_config"] = dataclasses.replace(decoder, vocab_size=size).to_dict()
    config = dataclasses.replace(backbone.config, vocab_size=size)
    copy = clone_with_config(model, config, **options)
    for new, old in zip(copy.weights, model.weights, strict=True):
        new.assign(old if new.shape == old.shape else _resized(old.numpy(), size))
    return copy


def _resized(values: np.ndarray, size: int) -> np.ndarray:
    """Returns values with one row per token, `[V, E]` or `[V]`, for another number of tokens."""
    values, more = values[:size], size - len(values)
    if more <= 0:
        return values
    # The bias of a token that was never seen is 0, as that of a new model.
    new = values.astype(np.float64).mean(axis=0) if values.ndim > 1 else 0.0
    new = np.broadcast_to(new, (more, *values.shape[1:])).astype(values.dtype)
    return np.concatenate([values, new])
