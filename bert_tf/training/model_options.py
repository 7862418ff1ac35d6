"""The constructor arguments of a model that exists: a new value counts from then on, or is refused.

Every constructor argument is an attribute. Many are read whenever the model is called, others only
while it is built: the size of a head, or its dropout. To set one of those would change nothing.
"""

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any, ClassVar

import keras

from bert_tf.errors import UserError
from bert_tf.training.traced_weights import RetracingModel


class OptionsModel(RetracingModel):
    """A Keras model whose constructor arguments may be set later, or are refused by name.

    Attributes:
        built_with: The arguments that only the constructor reads; those of base classes are added.
        option_forms: What an argument is turned into before it is stored.
    """

    built_with: ClassVar[tuple[str, ...]] = ()
    option_forms: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    _option_changes = 0

    def check_options(self) -> None:
        """Raises `UserError` if the values of options are out of range or do not fit together.

        A constructor calls it when all of its options are set; so does every later change of one.
        """

    def traced_settings(self, step):
        return self._option_changes

    def __setattr__(self, name, value):
        is_built = vars(self).get("built", False)
        if is_built and name in fixed_names(type(self)):
            raise UserError(
                f"`{name}` must be an argument of the constructor or of `compile`: the model is "
                f"made with it. Received: {name}={value!r:.200} for a model that exists. Make "
                f"another one, for example by `from_pretrained(path, {name}=…)`."
            )
        if name in option_names(type(self)):
            value = self.option_forms.get(name, _unchanged)(value)
            if is_built and hasattr(self, name):
                self._change_option(name, value)
                return
        super().__setattr__(name, value)

    def replace_option(self, name: str, value: Any) -> None:
        """Sets an option after the model was changed to fit it."""
        super().__setattr__(name, value)

    def _change_option(self, name, value):
        before = getattr(self, name)
        super().__setattr__(name, value)
        try:
            self.check_options()
        except Exception:
            super().__setattr__(name, before)
            raise
        self._option_changes += 1


def _unchanged(value):
    return value


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
    return frozenset(fixed.union(*(names.get("built_with", ()) for names in own)))


@functools.cache
def option_names(kind: type) -> frozenset[str]:
    """Returns the names of the constructor arguments of a model, without those of Keras.

    Example:
        >>> sorted(option_names(bert_tf.BertMaskedLM))
        ['backbone', 'max_length', 'tokenizer']
    """
    makers = [vars(base)["__init__"] for base in _own_bases(kind) if "__init__" in vars(base)]
    parameters = [p for maker in makers for p in inspect.signature(maker).parameters.values()]
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return frozenset(p.name for p in parameters if p.kind not in variable) - {"self"}
