"""Builds models from checkpoints and loads their weights."""

import dataclasses
import inspect
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf import tasks
from bert_tf.base.file_errors import file_error
from bert_tf.base.hints import hint_for
from bert_tf.base.tensor_source import read_floats
from bert_tf.checkpoints.assignment import assign_weights, find_biases, find_tensor, find_weights
from bert_tf.checkpoints.opening import Pretrained, open_pretrained
from bert_tf.checkpoints.own_format import restore_quantized
from bert_tf.checkpoints.weight_names import (
    BACKBONE,
    KERAS_ARGUMENTS,
    OWN,
    ambiguous_heads,
    backbone_of,
    backbone_weights,
    pooler_weights,
    task_heads,
)
from bert_tf.errors import CheckpointError, ConfigError, UserError, require
from bert_tf.inputs.labels import class_names
from bert_tf.layers.initial_weights import loading_backbone
from bert_tf.layers.quantization import Quantization
from bert_tf.models.backbone import BertBackbone
from bert_tf.tasks import declared_spec
from bert_tf.text.loading import find_tokenizer, load_tokenizer

_DEFAULT = "LABEL_{}"  # transformers' names, also in a `label2id` that nobody has set


def file_labels(values: Mapping[str, Any], path: str) -> list[str] | None:
    """Returns the names of classes in the order of their ids; None if the file has no two.

    Args:
        values: The keys of the file, such as `extra` of a `BertConfig`.
        path: The file, for errors.

    Raises:
        ConfigError: If the ids are not 0 to n - 1, a name is there twice, or `label2id` says
            something else.

    Example:
        >>> file_labels({"id2label": {"1": "good", "0": "bad"}}, "config.json")
        ['bad', 'good']
    """
    if not values.get("id2label"):
        return None
    names = {_id_of(key, path): str(name) for key, name in values["id2label"].items()}
    if sorted(names) != list(range(len(values["id2label"]))):
        rule = "have the ids 0 to n - 1 as keys, as the outputs of the head are numbered"
        raise _error(path, f"`id2label` must {rule}", f"the ids {sorted(names)[:20]}")
    labels = [names[number] for number in range(len(names))]
    require_different(labels, path)
    _require_inverse(values.get("label2id"), labels, path)
    return labels if len(labels) > 1 else None


def require_different(labels: Sequence[Any], path: str) -> None:
    """Raises `ConfigError` if a file gives two classes the same name."""
    repeated = [name for name, count in Counter(map(str, labels)).items() if count > 1]
    if repeated:
        raise _error(path, "Labels must be different", f"several times {repeated[:10]}")


def require_same(labels: Sequence[Any] | None, values: Mapping[str, Any], path: str) -> None:
    """Raises `ConfigError` if this package's `labels` in a file are not those of its `id2label`.

    Another program, or a person, may have changed one of the two.
    """
    found = file_labels(values, path) or []
    expected = labels or map(_DEFAULT.format, range(len(found)))
    if found and found != list(map(str, expected)):
        rule = "`id2label` must have the same names as `labels` in `bert_tf`"
        raise _error(path, rule, f"{found[:10]} and {list(labels or ())[:10]}")


def _id_of(key, path):
    try:
        return int(key)
    except ValueError:
        rule = "`id2label` must have class ids as keys"
        raise _error(path, rule, f"{key!r:.200}") from None


def _require_inverse(ids, labels, path):
    """Refuses a `label2id` that gives a name another id, or an id a name that is not a default."""
    if not isinstance(ids, Mapping):
        return
    known = {name: number for number, name in enumerate(labels)}
    for name, number in ids.items():
        is_default = name not in known and name == _DEFAULT.format(number)
        if not is_default and str(known.get(name)) != str(number):
            there = known.get(name, "no such name")
            received = f"{name!r:.200} with the id {number!r:.200}, and in `id2label` {there}"
            raise _error(path, "`label2id` must be the inverse of `id2label`", received)


def _error(path, rule, received):
    return ConfigError(
        f"{rule}. Received in {path}: {received}. Correct the file, or pass `labels=[…]`, the "
        "names in the order of the head's outputs."
    )


_logger = logging.getLogger("bert_tf")


def load_backbone(path, backbone_class=None, config_file=None, adapter=None, **options):
    """Builds a backbone from a checkpoint. See `BertBackbone.from_pretrained`.

    Args:
        path: See `load_task_model`.
        backbone_class: The class to build, a subclass of `BertBackbone`; None is `BertBackbone`.
        config_file, adapter: See `load_task_model`.
        **options: See `load_task_model`; arguments of the class except `config`.

    Returns:
        The backbone.

    Raises:
        CheckpointError: If the checkpoint cannot be read or does not fit its configuration.
        ConfigError: If the configuration describes a network that is not supported.
        UserError: If an option is unknown or out of range.

    Example:
        >>> backbone = bert_tf.checkpoints.load_backbone("reviews/")
        >>> backbone.config.vocab_size
        64
    """
    backbone_class = backbone_class or BertBackbone
    if backbone_class.__module__.startswith("bert_tf."):  # a user's class has its own arguments
        _refuse_unknown(backbone_class, options, _argument_names(backbone_class))
    pretrained = open_pretrained(path, config_file, adapter=adapter)
    quantization = Quantization.of(options.pop("quantization", None))
    if pretrained.quantization is not None:
        options["quantization"] = pretrained.quantization
    if not issubclass(backbone_class, pretrained.backbone_class):
        backbone_class = pretrained.backbone_class
    # A user's class may have more weights than those of the checkpoint.
    with loading_backbone(backbone_class is BertBackbone and pretrained.quantization is None):
        backbone = backbone_class(pretrained.config, **options)
    _assign(backbone, pretrained, quantization)
    return backbone


def load_task_model(model_class, path, config_file=None, tokenizer=None, adapter=None, **options):
    """Builds a task model from a checkpoint. See `TaskModel.from_pretrained`.

    Args:
        model_class: The class to build.
        path: The checkpoint: a directory, a file or a name on the Hugging Face Hub.
        config_file: The configuration of the network, instead of the checkpoint's.
        tokenizer: A tokenizer, instead of the checkpoint's.
        adapter: The task whose adapters are added to the weights, if the checkpoint has any
            (jina-embeddings-v3: "retrieval.query", …).
        **options: `quantization`, "int8" or a `bert_tf.layers.Quantization`, to quantize
            floating-point weights; `lowercase`, that of the checkpoint's `BertTokenizer`; other
            arguments of the class and of `BertBackbone`, which override those in the checkpoint.

    Returns:
        The model.

    Raises:
        CheckpointError: If the checkpoint cannot be read, does not fit its configuration or names
            an unknown class.
        ConfigError: If the configuration describes a network that is not supported.
        UserError: If an option is unknown or out of range.
        DataError: If the vocabulary cannot be read.

    Example:
        >>> from bert_tf.checkpoints import load_task_model
        >>> classifier = load_task_model(bert_tf.BertTextClassifier, "reviews/")
        >>> classifier.labels
        ['bad', 'good']
    """
    pretrained = open_pretrained(path, config_file, adapter=adapter)
    quantization = Quantization.of(options.pop("quantization", None))
    model = getattr(pretrained.source, "model", None)
    is_whole = pretrained.tokenizer is not None and pretrained.quantization is None
    if type(model) is not model_class or options or tokenizer is not None or not is_whole:
        model = build_model(model_class, pretrained, tokenizer, **options)
        _assign(model, pretrained, quantization)
        return model
    # The model of a `.keras` file, which Keras has built and filled.
    for name in pretrained.source.shapes:
        read_floats(pretrained.source, name)
    if quantization is not None:
        model.quantize(**dataclasses.asdict(quantization))
    return model


def labels_in_files(path) -> list[str] | None:
    """Returns the names of classes in the files of a checkpoint, or None, without its weights."""
    pretrained = open_pretrained(path)
    own = pretrained.options.get("labels")
    return class_names(own) if own else file_labels(pretrained.config.extra, pretrained.source.path)


def _assign(model, pretrained, quantization):
    """Loads the weights and, if requested, quantizes floating-point weights."""
    restored = restore_quantized(backbone_of(model), pretrained.source)
    assign_weights(pretrained.source, weights_of(model, pretrained), also_used=restored)
    if quantization is None or quantization == Quantization.of(pretrained.quantization):
        return
    if pretrained.quantization is not None:
        raise UserError(
            "`quantization` must be that of the file or None for a quantized model. Received: "
            f"quantization={quantization}, {pretrained.source.path} with "
            f"{Quantization.of(pretrained.quantization)}. Quantize the float model again."
        )
    model.quantize(**dataclasses.asdict(quantization))


def build_model(model_class, pretrained: Pretrained, tokenizer=None, **options):
    """Builds the model for an opened checkpoint, to be filled with the checkpoint's weights.

    The pooler and the heads, which a checkpoint may lack, have random weights.

    A `tokenizer` and `options` override those of the checkpoint: the arguments of the class and of
    `BertBackbone`, and the tokenizer's `lowercase`. Raises `UserError` if an option is unknown or
    out of range. Raises `ConfigError` if the vocabulary is cased and nothing says whether to
    lower-case text. Raises `CheckpointError` if the file names an unknown class.
    """
    known = {spec.model for spec in tasks.specs()}
    # The options and the head of an unknown class would be silently ignored.
    rule = f"in {pretrained.source.path} must be one of {sorted(known)}, or the class that opens it"
    fix = (
        "If this is your own class, open the file with it, import the package that registers its "
        "task, or open only the encoder with BertBackbone.from_pretrained."
    )
    is_known = pretrained.class_name in {None, *known, BACKBONE, *_names(model_class)}
    require(is_known, rule, CheckpointError, fix, **{"class": pretrained.class_name})
    takes_text = "preprocessor" not in options
    accepted = _argument_names(model_class) | _argument_names(BertBackbone)
    has_tokenizer = "tokenizer" in inspect.signature(model_class.__init__).parameters
    _refuse_unknown(model_class, options, accepted | ({"lowercase"} if has_tokenizer else set()))
    lowercase = options.pop("lowercase", None)
    saved = _saved_options(model_class, pretrained, options)
    if options.get("preprocessor") is not None:  # it holds the others
        saved = {n: v for n, v in saved.items() if not hasattr(options["preprocessor"], n)}
    options = {**saved, **options}
    if has_tokenizer:
        # The tokenizer comes first: a damaged vocabulary is refused before weights are allocated.
        rule = "must be left out with a `tokenizer`, which has its own"
        require(tokenizer is None or lowercase is None, rule, UserError, lowercase=lowercase)
        if tokenizer is None and takes_text:
            tokenizer = _tokenizer(pretrained, lowercase)
        options["tokenizer"] = tokenizer
    names = _argument_names(BertBackbone) - {"name"}
    backbone_options = {name: options.pop(name) for name in names if name in options}
    if "dtype" in backbone_options:
        options["dtype"] = backbone_options["dtype"]
    backbone_options["quantization"] = pretrained.quantization
    with loading_backbone(pretrained.quantization is None):
        backbone = pretrained.backbone_class(pretrained.config, **backbone_options)
    return model_class(backbone, **options)


def weights_of(model, pretrained: Pretrained) -> list:
    """Returns the weights of a model that the checkpoint holds.

    The others keep their random initialization. They are logged and listed in the model's
    `untrained_heads`.
    """
    source = pretrained.source
    missing = []
    backbone = backbone_of(model)
    weights = backbone_weights(backbone)
    pooler = pooler_weights(backbone)
    if any(find_weights(source, pooler)):
        weights += pooler
    else:
        backbone.pooler.is_missing = True
        if getattr(model, "uses_pooler", True):
            missing.append("pooler")
            _logger.warning(
                "%s has no pooler; it is initialized randomly. Use another pooling than 'cls', or "
                "fine-tune it.",
                source.path,
            )
    for name, head in task_heads(model).items():
        is_there = any(find_weights(source, head))
        if is_there and _is_same_head(name, type(model), pretrained):
            if name == "masked_lm":
                _check_tied(pretrained)
            weights += head
            continue
        missing.append(name.replace("_", " "))
        if is_there:
            _logger.warning(
                "%s has the %s of another class, %s; that of %s is initialized randomly.",
                source.path,
                missing[-1],
                ", ".join(pretrained.architectures) or pretrained.class_name,
                type(model).__name__,
            )
        else:
            _logger.info("%s has no %s; it is initialized randomly.", source.path, missing[-1])
    model.untrained_heads = tuple(missing)
    return weights


def _is_same_head(name, model_class, pretrained):
    """Returns whether the file's head of this name, which tasks share, is the model's."""
    if name not in ambiguous_heads():
        return True
    if pretrained.source.format == OWN:
        return pretrained.class_name in _names(model_class)
    # A file that names an architecture with a head has its head and no other.
    with_heads = {name for spec in tasks.specs() if spec.heads for name in spec.architectures}
    named = with_heads.intersection(pretrained.architectures)
    return not named or bool(named.intersection(declared_spec(model_class).architectures))


def _check_tied(pretrained):
    """Refuses a file whose masked-LM head does not share its table with the word embeddings."""
    source = pretrained.source
    decoder = "cls.predictions.decoder.weight"
    if pretrained.config.output_embedding_size is not None:
        return
    if pretrained.config.extra.get("tie_word_embeddings", True) or decoder not in source.shapes:
        return
    table = find_tensor(source, ["embeddings.word_embeddings.weight"])
    if table is not None and not np.array_equal(source.read(decoder), source.read(table)):
        expected = "have a masked-LM head that shares the word embeddings"
        received = "tie_word_embeddings=false and a different table in the head"
        raise file_error(source.path, expected, received)


def _tokenizer(pretrained, lowercase):
    if pretrained.tokenizer is not None:
        if lowercase is None:
            return pretrained.tokenizer
        config = {**pretrained.tokenizer.get_config(), "lowercase": lowercase}
        return pretrained.tokenizer.from_config(config)
    if find_tokenizer(pretrained.directory) is not None:
        options = {} if lowercase is None else {"lowercase": lowercase}
        return load_tokenizer(pretrained.directory, **options)
    _logger.warning(
        "%s has no vocabulary, so the model accepts token dictionaries only. Copy the "
        "checkpoint's vocab.txt or tokenizer.json there, or pass `tokenizer`.",
        pretrained.directory,
    )
    return None


def _names(model_class):
    """Returns the names of a class and of the classes that it is derived from."""
    return {base.__name__ for base in model_class.__mro__}


def _saved_options(model_class, pretrained, given):
    """Returns the options of the head in the file, without those that the caller overrides."""
    accepted = _argument_names(model_class)
    classes = _num_classes(model_class, pretrained)
    extra, path = pretrained.config.extra, pretrained.source.path
    options = {}
    is_own = pretrained.class_name in _names(model_class)
    if is_own:
        options = {key: value for key, value in pretrained.options.items() if key in accepted}
    given_classes = given.get("num_classes") or len(class_names(given.get("labels")) or ())
    own_head = "labels" in accepted and all(
        _is_same_head(head.name, model_class, pretrained)
        for head in declared_spec(model_class).heads.values()
    )
    if given_classes:
        if class_names(given.get("labels")) != options.get("labels"):
            options.pop("threshold", None)  # that of another class
        options.pop("labels", None)
        options.pop("num_classes", None)
    elif own_head and "labels" in options:
        require_different(options["labels"] or (), path)
        if pretrained.source.format == "huggingface":
            require_same(options["labels"], extra, path)
    elif own_head:
        labels = file_labels(extra, path)
        if labels is not None:
            options["labels"] = labels
        elif "num_classes" in accepted and classes is not None:
            options["num_classes"] = classes
    if "space_before_all_words" in accepted and (is_own or (own_head and classes is not None)):
        options.setdefault("space_before_all_words", True)  # the head was trained that way
    if "pooling" in accepted and own_head and extra.get("classifier_pooling"):
        options.setdefault("pooling", extra["classifier_pooling"])
    if "pooling" in accepted and pretrained.config.num_hidden_layers == 0:
        options.setdefault("pooling", "mean")  # of static embeddings
    if "problem_type" in accepted and own_head:
        if given_classes not in (0, classes):
            options.pop("problem_type", None)  # the caller builds another head
        elif extra.get("problem_type"):
            options.setdefault("problem_type", extra["problem_type"])
    return options


def _num_classes(model_class, pretrained):
    """Returns the number of classes according to the bias of the file's head; None without one."""
    source = pretrained.source
    heads = declared_spec(model_class).heads.values()
    found = (name for head in heads for name in find_biases(source, head) if name is not None)
    return next((source.shapes[n][0] for n in found if len(source.shapes[n]) == 1), None)


def _refuse_unknown(model_class, options, accepted):
    unknown = set(options) - accepted
    if unknown:
        raise UserError(
            f"The options of {model_class.__name__}.from_pretrained must be among "
            f"{sorted(accepted)}. Received: {sorted(unknown)}.{hint_for(sorted(unknown), accepted)}"
        )


def _argument_names(model_class):
    names = set()
    for base in model_class.__mro__:
        if (
            base.__module__.startswith("bert_tf.")
            or declared_spec(base).model_module == base.__module__
        ):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    return (names | {*KERAS_ARGUMENTS}) - {"self", "config", "backbone", "tokenizer", "args"}
