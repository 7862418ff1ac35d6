"""Exports a task model as a LiteRT (TensorFlow Lite) file, for phones and other small machines.

LiteRT needs sizes that are known, so the file has a signature for each length. All signatures share
their weights. Only builtin operations are written, which every LiteRT runtime has: the converter
refuses others.

Reference: https://ai.google.dev/edge/litert, "Post-training quantization".
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import keras_compat
from bert_tf.base.files import scratch_directory, staged_files
from bert_tf.base.optional_packages import require_package
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import UserError, require, user_error
from bert_tf.models.serving_module import TOKENS, ServingModule
from bert_tf.models.task_model import TaskModel
from bert_tf.serving.export import module_of_functions, serving_module
from bert_tf.text import Tokenizer

_logger = logging.getLogger("bert_tf")

# What the weights of the file are.
QUANTIZATIONS = ("none", "float16", "int8")
_MOST = 1e-5  # of float32 outputs: as for SavedModels
_OF_PADDING = 1e6  # scores of padding, such as the start of an answer there, are below -1e6
TOKENIZER_FILE, LABELS_FILE = "tokenizer.json", "labels.txt"


def export_litert(
    model: TaskModel,
    path: str | os.PathLike,
    lengths: int | Sequence[int] = 128,
    batch_size: int = 1,
    quantize: str = "none",
    verify: bool = False,
) -> float | None:
    """Writes a LiteRT file of token ids, with `tokenizer.json` and `labels.txt` next to it.

    For each length `T`, the file has a signature `tokens_T` with these inputs, `[B, T]`:
        token_ids: int32. Any tokenizer that reads `tokenizer.json` makes them.
        segment_ids: int32; only for networks with more than one segment.
        padding_mask: bool, true at tokens.
    The other inputs and the outputs are those of the signature `tokens` of `bert_tf.serving.export`
    (docs/serving.md), without strings: `labels.txt` has the names of the classes.

    Args:
        model: A task model with a tokenizer, whose examples are one sequence each.
        path: The file. An existing one is replaced atomically.
        lengths: The lengths of the sequences, `T`.
        batch_size: The number of sequences, `B`.
        quantize: "int8" and "float16" store the weights in this type. With "int8", matmuls round
            their inputs to 8 bits when the file runs (dynamic range quantization).
        verify: Whether to run the file with `ai-edge-litert` before it is moved to its place.

    Returns:
        With `verify`, the largest difference of an output from the model's, relative to the larger
        of 1 and the largest value; otherwise None.

    Raises:
        UserError: If the model cannot be exported (see `bert_tf.serving.export`), is quantized or
            prepacked, has several sequences per example, or needs an operation that LiteRT lacks;
            if the directory has the tokenizer or the labels of another model; or if a float32
            output differs by more than 1e-5.
        ConfigError: If an argument has an invalid value.

    Example:
        >>> import os
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.serving.export_litert(classifier, "phone/reviews.tflite", lengths=32)
        >>> sorted(os.listdir("phone"))
        ['labels.txt', 'reviews.tflite', 'tokenizer.json']
    """
    lengths = sorted({lengths} if isinstance(lengths, int) else {*lengths})
    module = serving_module(model)
    model.require_trained_heads("exported")
    most = model.backbone.config.max_position_embeddings
    rule = f"must be from 2 to {most}, the model's number of positions"
    require(lengths and lengths[0] >= 2 and lengths[-1] <= most, rule, lengths=lengths)
    require(batch_size > 0, "must be positive", batch_size=batch_size)
    require(quantize in QUANTIZATIONS, f"must be one of {QUANTIZATIONS}", quantize=quantize)
    _require_plain(module)
    if verify:
        require_package("ai_edge_litert", "`verify`")
    directory, name = os.path.split(os.path.abspath(path))
    with staged_files(directory) as new, scratch_directory(directory) as scratch:
        write_tokenizer_and_labels(model.tokenizer, getattr(model, "labels", None), new, directory)
        with ops.tflite_compatible():
            functions = {f"{TOKENS}_{T}": _traced(module, batch_size, T) for T in lengths}
        tf.saved_model.save(module_of_functions(functions), scratch, signatures=functions)
        file = os.path.join(new, name)
        with open(file, "wb") as written:
            written.write(_convert(scratch, list(functions), quantize, model))
        return _compare(module, functions, file, quantize == "none") if verify else None


def write_tokenizer_and_labels(
    tokenizer: Tokenizer, labels: Sequence[str] | None, new: str, directory: str
) -> None:
    """Writes what a program without bert_tf needs next to a network of token ids.

    Args:
        tokenizer: The tokenizer; `tokenizer.json` gives its ids with Hugging Face's `tokenizers`.
            A warning says if no such file can have its rules.
        labels: The names of the classes, if there are any, for `labels.txt`.
        new: The directory to write to.
        directory: Where the files will be moved.

    Raises:
        UserError: If `directory` has such a file of another model, or a label has a line break.
    """
    contents = {}
    try:
        definition = json.dumps(tokenizer.to_huggingface(), ensure_ascii=False, indent=1)
        contents[TOKENIZER_FILE] = f"{definition}\n"
    except UserError as error:
        _logger.warning("No %s is written: %s", TOKENIZER_FILE, error)
    if labels:
        if any(end in label for label in labels for end in "\r\n"):
            raise user_error("`labels`", f"have no line breaks, for {LABELS_FILE}", [*labels])
        contents[LABELS_FILE] = "".join(f"{label}\n" for label in labels)
    for name, content in contents.items():
        place = os.path.join(directory, name)
        if os.path.exists(place):
            options = {"encoding": "utf-8", "errors": "replace", "newline": ""}
            with open_regular(place, "r", **options) as file:
                if file.read() != content:
                    expected = f"have no {name} of another model"
                    received = f"{place}. Write the model to a directory of its own."
                    raise user_error(f"The directory {directory}", expected, received)
        with open(os.path.join(new, name), "w", encoding="utf-8", newline="") as file:
            file.write(content)


def _require_plain(module: ServingModule) -> None:
    """Raises `UserError` if the model has no form that the converter can read."""
    model = module.model
    if module.declared.has_sequences:
        expected = "have one sequence per example for LiteRT, whose sizes are fixed"
        raise user_error("`model`", expected, type(model).__name__)
    if model.backbone.quantization is not None or model.backbone.is_prepacked:
        raise UserError(
            "`model` must be in floating point and not prepacked. Received: "
            f"quantization={model.backbone.quantization}, prepacked={model.backbone.is_prepacked}. "
            "Export the original model with quantize='int8'."
        )
    if not hasattr(tf, "lite"):
        expected = "have the converter of TensorFlow Lite"
        raise user_error("TensorFlow", expected, f"{tf.__version__} without `tf.lite`")


def _traced(module: ServingModule, batch_size: int, length: int):
    """Returns the concrete function of token dictionaries `[batch_size, length]`."""
    ids = tf.TensorSpec([batch_size, length], tf.int32)
    specs = {"token_ids": ids, "padding_mask": tf.TensorSpec(ids.shape, tf.bool)}
    if module.model.backbone.config.type_vocab_size > 1:
        specs["segment_ids"] = ids
    for name, each in module.inputs.items():
        specs[name] = tf.TensorSpec([batch_size, *each.shape], each.dtype)

    def outputs(**tokens):
        values = module.of_tokens(tokens)
        return {name: value for name, value in values.items() if value.dtype != tf.string}

    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in specs.items()}
    return tf.function(outputs, autograph=False).get_concrete_function(**named)


def _convert(directory: str, signatures: list[str], quantize: str, model: TaskModel) -> bytes:
    """Returns the LiteRT file of a SavedModel."""
    converter = tf.lite.TFLiteConverter.from_saved_model(directory, signature_keys=signatures)
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    if quantize != "none":
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if quantize == "float16":
        converter.target_spec.supported_types = [tf.float16]
    try:
        return converter.convert()
    except keras_compat.tflite_converter_error() as error:
        lacking = sorted({*re.findall(r"'tf\.(\w+)' op is neither", str(error))})
        expected = "need only operations that LiteRT has"
        received = f"{type(model).__name__}, which needs {', '.join(lacking) or error}"
        raise user_error("`model`", expected, received) from None


def _batches(functions: dict, vocabulary_size: int, pad: int, segments: int) -> Iterator[tuple]:
    """Yields each signature with random tokens; the last row has padding."""
    source = np.random.default_rng(0)
    for name, function in functions.items():
        _, specs = function.structured_input_signature
        tokens = {key: np.zeros(s.shape, s.dtype.as_numpy_dtype) for key, s in specs.items()}
        mask, ids = tokens["padding_mask"], tokens["token_ids"]
        mask[:] = True
        mask[-1, mask.shape[1] * 3 // 4 :] = False
        ids[:] = np.where(mask, source.integers(0, vocabulary_size, ids.shape), pad)
        if "segment_ids" in tokens:
            tokens["segment_ids"][:, mask.shape[1] // 2 :] = segments - 1
        yield name, tokens


def _compare(module: ServingModule, functions: dict, path: str, is_exact: bool) -> float:
    """Returns the largest relative difference of the file's numbers from the model's."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter, worst = Interpreter(model_path=path), 0.0
    config = module.model.backbone.config
    sizes = config.vocab_size, module.model.tokenizer.pad_token_id, config.type_vocab_size
    for signature, tokens in _batches(functions, *sizes):
        found = interpreter.get_signature_runner(signature)(**tokens)
        with ops.backend("reference"):
            expected = module.of_tokens({k: tf.constant(v) for k, v in tokens.items()})
        for name, values in found.items():
            reference = expected[name].numpy()
            if reference.dtype.kind == "f":
                size = np.abs(reference)
                scale = size.max(initial=1.0, where=size < _OF_PADDING)
                differences = np.abs(values - reference) / np.maximum(size, scale)
                worst = float(np.maximum(worst, differences.max(initial=0.0)))  # max loses NaN
    if is_exact and not worst <= _MOST:
        received = f"{worst:.2e}. No file was written."
        raise user_error("LiteRT and the model", f"differ by at most {_MOST:.0e}", received)
    return worst
