"""The constructor arguments of a model that exists: a new value counts from then on, or is refused.

Every constructor argument is an attribute. Many are read whenever the model is called, others only
while it is built: the size of a head, or its dropout. To set one of those would change nothing.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import keras

from bert_tf.base import hooks
from bert_tf.errors import UserError

# Options of `from_pretrained` that no constructor has.
_FILE_OPTIONS = ("config_file", "adapter", "dtype", "lowercase")
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def set_option(model: Any, name: str, value: Any, assign: Callable[[str, Any], None]) -> None:
    """Sets an option of a model by `assign`, the `__setattr__` of the model's base class.

    Raises `UserError` if the model is built with the option, or its `check_options` refuses the
    value.
    """
    if hasattr(getattr(type(model), name, None), "__set__"):
        assign = functools.partial(object.__setattr__, model)  # Keras would wrap lists
    is_built = vars(model).get("built", False)
    if is_built and name in model._fixed_options:
        raise UserError(
            f"`{name}` must be an argument of the constructor or of `compile`: the model is "
            f"made with it. Received: {name}={value!r:.200} for a model that exists. Make "
            f"another one, for example by `from_pretrained(path, {name}=…)`."
        )
    if not is_built or not hasattr(model, name):
        assign(name, value)
        return
    before = getattr(model, name)
    assign(name, value)
    try:
        model.check_options()
    except Exception:
        assign(name, before)
        raise
    assign("_option_changes", model._option_changes + 1)


class OpeningMethod(classmethod):
    """A class method `from_pretrained` whose signature shows the options of the class.

    They are the arguments of the constructors, which `**options` stands for.

    Args:
        function: The method, with `**options` as its last parameter.
        backbone: For a task model, the class of its backbone, whose arguments are options too.

    Example:
        >>> import inspect
        >>> signature = inspect.signature(bert_tf.BertTextClassifier.from_pretrained)
        >>> "labels" in signature.parameters, "num_encoder_layers" in signature.parameters
        (True, True)
    """

    def __init__(self, function: Callable, backbone: type | None = None):
        super().__init__(function)
        self.backbone = backbone

    def __get__(self, instance, owner=None):
        return _with_signature(self, owner or type(instance))


@functools.cache
def _with_signature(method, owner):
    function = method.__func__

    @functools.wraps(function)
    def opening(*args, **kwargs):
        return function(owner, *args, **kwargs)

    _, *given = inspect.signature(function).parameters.values()
    kinds = [owner] if method.backbone is None else [owner, method.backbone]
    makers = [maker for kind in kinds for maker in _constructors(kind)]
    options = [p for maker in makers for p in inspect.signature(maker).parameters.values()]
    more = _FILE_OPTIONS[:3] if method.backbone is None else _FILE_OPTIONS
    options += [inspect.Parameter(name, _KEYWORD, default=None) for name in more]
    left_out = {"self", "config", "backbone", "args", "kwargs", *(p.name for p in given)}
    shown = {p.name: p.replace(kind=_KEYWORD) for p in options if p.name not in left_out}
    opening.__signature__ = inspect.Signature([*given[:-1], *shown.values()])
    return opening


def _constructors(kind):
    return [vars(base)["__init__"] for base in _own_bases(kind) if "__init__" in vars(base)]


def _own_bases(kind):
    """Returns a model's class and its bases, without those of Keras."""
    return list(itertools.takewhile(lambda base: base is not keras.Model, kind.__mro__))


@functools.cache
def fixed_names(kind: type) -> frozenset[str]:
    """Returns the names of the arguments and properties of a model that cannot be set.

    Example:
        >>> "dropout" in fixed_names(bert_tf.BertTextClassifier)
        True
    """
    own = [vars(base) for base in _own_bases(kind)]
    values = {name: getattr(kind, name) for names in own for name in names}
    properties = {name for name, value in values.items() if isinstance(value, property)}
    fixed = {name for name in properties if values[name].fset is None}
    own_names = (names.get("built_with", ()) for names in own)  # of a class without a spec
    return frozenset(fixed.union(("backbone",), hooks.declared_spec(kind).built_with, *own_names))


@functools.cache
def option_names(kind: type) -> frozenset[str]:
    """Returns the names of the constructor arguments of a model, without those of Keras.

    Example:
        >>> sorted(option_names(bert_tf.BertMaskedLM))
        ['backbone', 'max_length', 'preprocessor', 'tokenizer']
    """
    makers = map(inspect.signature, _constructors(kind))
    parameters = [p for maker in makers for p in maker.parameters.values()]
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(p.name for p in parameters if p.kind not in variable) - {"self"}
