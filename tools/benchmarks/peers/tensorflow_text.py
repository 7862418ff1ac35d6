"""The peer tensorflow-text: its two BERT tokenizers."""

import numpy as np
import tensorflow as tf
import tensorflow_text

from . import keras_common
from .base import Peer, Task


class _TokenizerTask(Task):
    def __init__(self, tokenizer, texts):
        self._texts = tf.constant(texts)
        self._tokenize = tf.function(
            lambda strings: tokenizer.tokenize(strings).merge_dims(1, -1),
            input_signature=[tf.TensorSpec([None], tf.string)],
        )

    def run(self):
        ids = self._tokenize(self._texts)
        return int(ids.row_splits[-1])

    def outputs(self):
        ids = self._tokenize(self._texts)
        return {
            "ids": ids.flat_values.numpy().astype(np.int32),
            "row_splits": ids.row_splits.numpy(),
        }


class TensorFlowText(Peer):
    """tensorflow-text; "fast" is `FastBertTokenizer`, "plain" is `BertTokenizer`."""

    def __init__(self, setup):
        super().__init__(setup)
        keras_common.set_threads(setup.threads)

    @property
    def version(self):
        return tensorflow_text.__version__

    def variants(self, job, bucket, is_ragged):
        return ("fast", "plain")

    def tokenizer(self, texts, vocabulary, variant):
        if variant == "plain":
            tokenizer = tensorflow_text.BertTokenizer(
                vocabulary, lower_case=True, token_out_type=tf.int32
            )
        else:
            with open(vocabulary, encoding="utf-8") as file:
                pieces = file.read().rstrip("\n").split("\n")  # splitlines also splits at U+2028
            tokenizer = tensorflow_text.FastBertTokenizer(
                pieces, lower_case_nfd_strip_accents=True, token_out_type=tf.int32
            )
        return _TokenizerTask(tokenizer, texts)
