"""The peer tensorflow-text: its two BERT tokenizers."""

import tensorflow as tf
import tensorflow_text

from . import keras_common


class TensorFlowText(keras_common.TensorFlowPeer):
    """tensorflow-text; "fast" is `FastBertTokenizer`, "plain" is `BertTokenizer`."""

    version = tensorflow_text.__version__
    VARIANTS = {"tokenizer": ("fast", "plain")}

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
        return keras_common.tokenizer_task(
            lambda texts: tokenizer.tokenize(texts).merge_dims(1, -1), texts
        )
