"""The tokenization and the pooling of a sentence, for peers without a tokenizer."""

import os

import numpy as np
import tokenizers


def sentence_tokenizer(directory: str):
    """Returns a function from a text to the inputs of transformers' BERT, int64 `[1, T]`.

    It is Hugging Face's tokenizer of the checkpoint's `tokenizer.json`.
    """
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    tokenizer.no_padding()  # turns off the padding to a fixed length

    def tokenize(text):
        encoding = tokenizer.encode(text)
        return {
            "input_ids": np.array([encoding.ids], np.int64),
            "token_type_ids": np.array([encoding.type_ids], np.int64),
            "attention_mask": np.array([encoding.attention_mask], np.int64),
        }

    return tokenize


def sentence_vector(states: np.ndarray) -> np.ndarray:
    """Returns the mean over the tokens, scaled to length 1: `[1, T, H]` -> `[1, H]`."""
    mean = states.mean(axis=1)
    return mean / np.linalg.norm(mean)
