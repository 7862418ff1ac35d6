"""The parts of tensorflow-text that tokenizers use. Importing all of it takes half a second.

Glossary: `B` strings, `T` pieces of a string.
"""

import contextlib
import functools
import importlib.util
import os
import platform
import sys
import threading

import numpy as np
import tensorflow as tf

# What to do on a system for which no wheels are published.
_NO_WHEELS = {
    "Windows": "It has no wheels for Windows: run this under Linux, for example in WSL 2, "
    "or pass token ids, which every model takes."
}
_LOADING = threading.Lock()  # a module that is loaded twice crashes at the end of the process


@contextlib.contextmanager
def explained_import():
    """Makes the error of an import of tensorflow-text say what to install.

    Raises `ImportError` if it is not installed for this TensorFlow.
    """
    try:
        yield
    except (ImportError, tf.errors.NotFoundError) as error:
        minor = ".".join(tf.__version__.split(".")[:2])
        pip = f"Install it with: pip install 'tensorflow-text=={minor}.*'"
        raise ImportError(
            "Tokenization needs the tensorflow-text of TensorFlow's minor version. "
            f"Received: {error}. {_NO_WHEELS.get(platform.system(), pip)}"
        ) from error


@functools.cache
def _part(name: str):
    """Returns the ops of a tokenizer and the module that builds its model.

    They are loaded from their files, under the names that tensorflow-text gives them, so that it
    can be imported afterwards. Tried with tensorflow-text 2.21; 2.19 and 2.20 have the same files.
    """
    with explained_import(), _LOADING:
        package = importlib.util.find_spec("tensorflow_text")
        if package is None:
            raise ImportError("No module named 'tensorflow_text'")
        (folder,) = package.submodule_search_locations
        ops = tf.load_op_library(os.path.join(folder, "python", "ops", f"_{name}.so"))
        file = f"pywrap_{name}_model_builder"
        full_name = f"tensorflow_text.core.pybinds.{file}"
        if full_name not in sys.modules:
            path = os.path.join(folder, "core", "pybinds", f"{file}.so")
            spec = importlib.util.spec_from_file_location(full_name, path)
            builder = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(builder)
            sys.modules[full_name] = builder
        return ops, sys.modules[full_name]


def build_wordpiece_model(vocabulary, max_bytes_per_word, prefix, unk_token, of_words) -> bytes:
    """Returns a model for `word_pieces`, `of_words` or of texts, which it splits into words."""
    _, builder = _part("fast_wordpiece_tokenizer")
    return builder.build_fast_wordpiece_model(
        vocabulary, max_bytes_per_word, prefix, unk_token, of_words, False
    )  # False: not for detokenization


def word_pieces(texts: tf.Tensor, model: bytes) -> tuple[tf.RaggedTensor, ...]:
    """Returns the ids (int32) of strings `[B]`, and their starts and ends (int64), `[B, (T)]`."""
    ops, _ = _part("fast_wordpiece_tokenizer")
    # tensorflow-text itself would convert the model number by number, which takes a second.
    _, ids, row_splits, starts, ends = ops.fast_wordpiece_tokenize_with_offsets(
        input_values=texts, wp_model=np.frombuffer(model, np.uint8)
    )
    ids = tf.RaggedTensor.from_row_splits(tf.cast(ids, tf.int32), row_splits, validate=False)
    return ids, ids.with_values(starts), ids.with_values(ends)


def build_normalizer_model(lowercase: bool) -> bytes:
    """Returns a model for `normalize`."""
    _, builder = _part("fast_bert_normalizer")
    return builder.build_fast_bert_normalizer_model(lowercase)


def normalize(texts: tf.Tensor, model: bytes) -> tf.Tensor:
    """Returns strings `[B]` in the form of tensorflow-text's `FastBertTokenizer`."""
    ops, _ = _part("fast_bert_normalizer")
    model = np.frombuffer(model, np.uint8)
    return ops.fast_bert_normalize(
        input_values=texts, fast_bert_normalizer_model=model, get_offsets=False
    )[0]
