"""Exports a task model as a SavedModel whose inputs are raw strings."""

import itertools
import os
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf import ops, tasks
from bert_tf.base.files import atomic_path, scratch_directory
from bert_tf.base.json_files import write_json
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import UserError, require, user_error
from bert_tf.models.serving_module import SERVING_DEFAULT, ServingModule
from bert_tf.models.task_model import TaskModel
from bert_tf.serving.description import DESCRIPTION_FILE, describe
from bert_tf.serving.versions import find_versions
from bert_tf.serving.warmup import WARMUP_FILE, write_warmup_requests


def export(
    model: TaskModel,
    directory: str | os.PathLike,
    version: int | None = None,
    portable: bool = True,
    pairs: bool = False,
) -> str:
    """Writes a SavedModel to `directory/version`, the directory layout of TF Serving.

    The SavedModel has these signatures, with any batch size `B` and sequence length `T`; `C` is the
    number of choices. docs/serving.md lists the outputs of every task:
        serving_default: string inputs `[B]` (multiple choice: `[B, C]`).
        tokens: `token_ids` int32, `segment_ids` int32 and `padding_mask` bool, all `[B, T]`
            (multiple choice: `[B, C, T]`).
        examples: `examples` string `[B]`, serialised `tf.train.Example`s; the outputs are those of
            serving_default.

    `assets` holds the vocabulary, the labels and the configurations of tokenizer and network,
    `assets.extra` TF Serving's warm-up requests and `bert_tf.json`, which describes the model.

    Args:
        model: A task model with a tokenizer, other than a pre-training model.
        directory: The model's directory.
        version: The name of the subdirectory. An existing one is replaced atomically. None is one
            more than the newest version, because servers load a version only once.
        portable: True writes only operations of TensorFlow and tensorflow-text. False keeps the
            fused operations, which do not compute padding; the loading program must `import
            bert_tf` or load its shared object.
        pairs: For a classifier, whether its inputs are two texts, `text` and `pair`.

    Returns:
        The path of the SavedModel.

    Raises:
        UserError: If the model's class cannot be exported, it is not trained, it has no tokenizer,
            or one with a segmenter, `pairs` is not supported, `portable=True` is given for
            prepacked kernels, or `portable=False` without the built operations.
        CheckpointError: If an interrupted save in `directory` cannot be undone.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.serving.export(classifier, "serving/reviews")
        'serving/reviews/1'
    """
    module = serving_module(model, pairs)
    model.require_trained_heads("exported")
    if portable and model.backbone.is_prepacked:
        raise UserError(
            "`portable` must be False for a model with prepacked kernels, which only the fused "
            "operations can read. Received: portable=True. Export the model before calling "
            "`prepack_for_inference()`, or pass portable=False."
        )
    rule = "must be True if the native operations are not built"
    fix = "Build them (`make ops`), or pass portable=True."
    require(portable or ops.native.library() is not None, rule, UserError, fix, portable=False)
    if version is None:
        version = max(find_versions(directory), default=0) + 1
    path = os.path.join(os.fspath(directory), str(version))
    backend = "reference" if portable else "native"
    with ops.backend(backend), atomic_path(path) as new, scratch_directory(directory) as files:
        functions = module.signatures()
        saved = module_of_functions(functions)
        saved.files = [tf.saved_model.Asset(file) for file in _write_assets(model, files)]
        tf.saved_model.save(saved, new, signatures=functions)
        _keep_branches_as_functions(os.path.join(new, tf.saved_model.SAVED_MODEL_FILENAME_PB))
        extra = os.path.join(new, "assets.extra")
        os.mkdir(extra)
        description = describe(
            module, functions, version=version, portable=portable, tensorflow=tf.__version__
        )
        write_json(os.path.join(extra, DESCRIPTION_FILE), description)
        requests = [(SERVING_DEFAULT, texts) for texts in module.sample_texts()]
        write_warmup_requests(os.path.join(extra, WARMUP_FILE), requests)
    return path


def export_from_model(
    model: TaskModel, filepath: str | os.PathLike, format: str, input_signature: Any, **options
) -> str:
    """Does what `TaskModel.export` does: checks Keras's own arguments and calls `export`."""
    if format != "tf_saved_model":
        raise UserError(
            "`format` must be 'tf_saved_model'; `bert-tf export_onnx` converts that, and "
            f"`bert_tf.serving.export_litert` writes LiteRT files. Received: {format=}"
        )
    if input_signature is not None:
        raise UserError(
            "`input_signature` must be None: a task is exported with the signatures of raw "
            f"text, tokens and examples (docs/serving.md). Received: {input_signature!r}"
        )
    if unknown := set(options) - {"version", "portable", "pairs"}:
        expected = "be those of `bert_tf.serving.export`: version, portable, pairs"
        raise user_error("The arguments", expected, ", ".join(sorted(unknown)))
    return export(model, filepath, **options)


def serving_module(model: TaskModel, pairs: bool = False) -> ServingModule:
    """Builds the module that `export` writes; `pairs` is as in `export`.

    Raises:
        UserError: If the model's class cannot be exported, it has no tokenizer, or one with a
            segmenter, or `pairs` is not supported.
    """
    spec = model.spec
    if spec.serving is None:
        expected = f"be one of {[spec.model for spec in tasks.specs() if spec.serving]}"
        raise user_error("`model`", expected, type(model).__name__)
    if model.tokenizer is None:
        raise UserError("`model` must have a tokenizer. Received: tokenizer=None")
    if getattr(model.tokenizer, "segmenter", None) is not None:
        raise UserError(
            "`model.tokenizer` must have no segmenter, which is Python code that a SavedModel "
            f"cannot hold. Received: segmenter={model.tokenizer.segmenter!r}. Call the model in "
            "Python. Or set `model.tokenizer = BertTokenizer.from_config(model.tokenizer."
            "get_config() | {'segmenter': None})`, export, and pass the ids of the tokenizer with "
            "the segmenter to the signature `tokens`."
        )
    if pairs and not spec.serving.takes_pairs:
        names = [s.model for s in tasks.specs() if s.serving and s.serving.takes_pairs]
        expected = f"be False unless the model is a {' or '.join(names)}"
        raise user_error("`pairs`", expected, f"pairs=True, model={type(model).__name__}")
    module = spec.serving_class()
    return module(model, pairs) if pairs else module(model)


def module_of_functions(functions: dict) -> tf.Module:
    """Returns a module that tracks the variables of concrete functions, for a SavedModel.

    A Keras model must not be tracked itself: TensorFlow would write two variables for every Keras
    variable, the one that the graph reads and a copy, and restore only the copy.
    `tf.saved_model.load` corrects this; in TF Serving and other C++ programs the variables would
    have no values.
    """
    saved = tf.Module()
    used = itertools.chain(*(function.variables for function in functions.values()))
    saved.used_variables = list({id(variable): variable for variable in used}.values())
    return saved


def _keep_branches_as_functions(path) -> None:
    """Makes TensorFlow call the branches of conditions, instead of copying them into the graph.

    In the graph, the nodes of the branch that is not taken are passed over one by one. In the
    tokenizer these are most of the nodes: plain text needs few, any other text many.
    """
    saved_model = saved_model_pb2.SavedModel()
    with open_regular(path) as file:
        saved_model.ParseFromString(file.read())
    for meta_graph in saved_model.meta_graphs:
        for function in meta_graph.graph_def.library.function:
            for node in function.node_def:
                if node.op in ("If", "StatelessIf"):
                    node.attr["_lower_using_switch_merge"].b = False
    with open(path, "wb") as file:
        file.write(saved_model.SerializeToString(deterministic=True))


def _write_assets(model, directory) -> list[str]:
    """Writes the model's asset files into `directory` and returns their paths."""
    model.tokenizer.save_pretrained(directory)
    config = model.backbone.config.to_huggingface()
    write_json(os.path.join(directory, "config.json"), config, sort_keys=True)
    if getattr(model, "labels", None):
        with open(os.path.join(directory, "labels.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{label}\n" for label in model.labels)
    return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
