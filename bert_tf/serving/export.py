"""Writes a task model as a SavedModel that takes raw strings."""

import json
import os

import tensorflow as tf

from bert_tf import ops, tasks
from bert_tf.errors import UserError
from bert_tf.files import atomic_path, scratch_directory
from bert_tf.models.serving_module import SERVING_DEFAULT, ServingModule
from bert_tf.models.task_model import TaskModel
from bert_tf.serving.description import DESCRIPTION_FILE, describe
from bert_tf.serving.server.model_directory import find_versions
from bert_tf.serving.warmup import WARMUP_FILE, write_warmup_requests


def export(
    model: TaskModel,
    directory: str | os.PathLike,
    version: int | None = None,
    portable: bool = True,
    pairs: bool = False,
) -> str:
    """Writes `directory/version`, the layout that TF Serving watches.

    Signatures, `B` being the batch and `T` the tokens, both of any size:
        serving_default: string `[B]` inputs (choices: `[B, C]`) -> the outputs of the task
            (docs/serving.md).
        tokens: `token_ids` int32, `segment_ids` int32 and `padding_mask` bool, all `[B, T]`; of
            multiple choice `[B, C, T]`.
        examples: `examples` string `[B]`, serialised `tf.train.Example`s -> as serving_default.

    The directory also holds, under `assets`, the vocabulary, the tokenizer's and the network's
    configuration and the labels; under `assets.extra` TF Serving's warm-up requests and
    `bert_tf.json`, which says what goes in and comes out.

    Args:
        model: A task model with its tokenizer. (The models that pre-train are none.)
        directory: The model's directory.
        version: Name of the subdirectory; an older one of that name is replaced as a whole. None is
            one more than the newest: servers load a version once, so a new model is a new version.
        portable: True writes only stock TensorFlow and tensorflow-text operations, which any
            program with those libraries loads. False keeps the fused operations and computes no
            padding; it needs `import bert_tf` (or its shared object) in the loading program.
        pairs: For a classifier: whether it takes two texts, `text` and `pair`.

    Returns:
        The path that was written.

    Raises:
        UserError: If the model is of another kind, is not trained or has no tokenizer, if a frozen
            one shall be portable, or for `portable=False` without the built operations.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.serving.export(classifier, "serving/reviews")
        'serving/reviews/1'
    """
    module = serving_module(model, pairs)
    model.require_trained_heads("exported")
    if portable and model.backbone.is_frozen:
        raise UserError(
            "A model frozen for inference has packed kernels, which only the fused operations "
            "read. Received: portable=True. Export before freezing, or with portable=False."
        )
    if not portable and ops.native.library() is None:
        raise UserError(
            "`portable=False` needs the native operations. Received: none are built here. Build "
            "them (`make ops`), or export with portable=True."
        )
    if version is None:
        version = max(find_versions(directory), default=0) + 1
    path = os.path.join(os.fspath(directory), str(version))
    backend = "reference" if portable else "native"
    with ops.backend(backend), atomic_path(path) as new, scratch_directory(directory) as files:
        functions = module.signatures()
        saved = tf.Module()
        saved.used_variables = _used_variables(functions)
        saved.files = [tf.saved_model.Asset(file) for file in _write_assets(model, files)]
        tf.saved_model.save(saved, new, signatures=functions)
        extra = os.path.join(new, "assets.extra")
        os.mkdir(extra)
        description = describe(
            module, functions, version=version, portable=portable, tensorflow=tf.__version__
        )
        with open(os.path.join(extra, DESCRIPTION_FILE), "w", encoding="utf-8") as file:
            json.dump(description, file, indent=2, ensure_ascii=False)
            file.write("\n")
        requests = [(SERVING_DEFAULT, texts) for texts in module.sample_texts()]
        write_warmup_requests(os.path.join(extra, WARMUP_FILE), requests)
    return path


def serving_module(model: TaskModel, pairs: bool = False) -> ServingModule:
    """What `export` writes, as a module that can be called.

    Raises:
        UserError: As in `export`.
    """
    spec = tasks.spec_of(type(model))
    module = None if spec is None else spec.serving_class()
    if module is None:
        raise UserError(
            f"One of {[spec.model for spec in tasks.specs() if spec.serving]} was expected. "
            f"Received: {type(model).__name__}"
        )
    if model.tokenizer is None:
        raise UserError("A model with a tokenizer was expected. Received: tokenizer=None")
    if pairs and not module.takes_pairs:
        takers = [s.model for s in tasks.specs() if s.serving and s.serving_class().takes_pairs]
        raise UserError(
            f"`pairs` is for {' or '.join(takers)}. Received: pairs=True, {type(model).__name__}"
        )
    return module(model, pairs) if pairs else module(model)


def _used_variables(functions) -> list[tf.Variable]:
    """TensorFlow's variables that the signatures read, each once.

    A Keras model must not be tracked itself: of every Keras variable TensorFlow would write two,
    the one that the graph reads and a copy, and restore the copy. `tf.saved_model.load` mends that;
    TF Serving and every other program in C++ would find the variables without values.
    """
    variables = {}
    for function in functions.values():
        for variable in function.variables:
            variables[id(variable)] = variable
    return list(variables.values())


def _write_assets(model, directory) -> list[str]:
    """The files about the model that are written into `directory`."""
    model.tokenizer.save_pretrained(directory)
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
        json.dump(model.backbone.config.to_huggingface(), file, indent=2, sort_keys=True)
        file.write("\n")
    if getattr(model, "labels", None):
        with open(os.path.join(directory, "labels.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{label}\n" for label in model.labels)
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
