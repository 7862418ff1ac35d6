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


def set_option(model: Any, name: str, value: Any, assign: Callable[[str, Any], None]) -> None:
    """Sets an option of a model; that of a built model is checked first.

    Args:
        model: A model with `check_options`.
        name, value: The option, one of `option_names` or `fixed_names`.
        assign: The `__setattr__` of the model's base class.

    Raises:
        UserError: If the model is built with the option, or its `check_options` refuses the value.
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
    makers = [vars(base)["__init__"] for base in _own_bases(kind) if "__init__" in vars(base)]
    parameters = [p for maker in makers for p in inspect.signature(maker).parameters.values()]
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(p.name for p in parameters if p.kind not in variable) - {"self"}
