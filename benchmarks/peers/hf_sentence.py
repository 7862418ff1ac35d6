"""The tokenization and the pooling of a sentence, for peers without a tokenizer."""

import os

import numpy as np
import tokenizers

from . import base


def tokenizer(directory: str):
    """Returns a function from a text to the inputs of transformers' BERT, int64 `[1, T]`."""
    loaded = tokenizers.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    loaded.no_padding()  # turns off the padding to a fixed length

    def tokenize(text):
        encoding = loaded.encode(text)
        return {
            "input_ids": np.array([encoding.ids], np.int64),
            "token_type_ids": np.array([encoding.type_ids], np.int64),
            "attention_mask": np.array([encoding.attention_mask], np.int64),
        }

    return tokenize


def sentence_task(directory: str, model, text: str) -> base.Task:
    """Creates a task with Hugging Face's tokenizer of the checkpoint's `tokenizer.json`.

    `model` is a function from the inputs of `tokenizer` to its `sequence_output`, `[1, T, H]`.
    The vector is the mean over the tokens, scaled to length 1.
    """
    tokenize = tokenizer(directory)

    def encode(text):
        mean = model(tokenize(text)).mean(axis=1)  # [1, T, H] -> [1, H]
        return mean / np.linalg.norm(mean)

    return base.sentence_task(encode, text)
