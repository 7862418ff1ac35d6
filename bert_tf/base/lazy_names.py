"""Public names of a package that are imported when they are first used.

Tools read their flags, and processes prepare data, without TensorFlow.
"""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, names: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Returns `__getattr__`, `__dir__` and `__all__` of a package.

    No module of the package may have a public name as its name, because importing the module would
    replace the public name.

    Args:
        package: The package's `__name__`.
        names: The public names, each with the module that defines it. A module that begins with a
            dot is relative to the package.

    Example:
        >>> __getattr__, __dir__, __all__ = lazy_names(
        ...     "bert_tf.text", {"BertTokenizer": ".tokenizer"}
        ... )
        >>> __getattr__("BertTokenizer")
        <class 'bert_tf.text.tokenizer.BertTokenizer'>
    """

    def get_attribute(name):
        if name in names:
            return getattr(importlib.import_module(names[name], package), name)
        raise AttributeError(
            f"module {package!r} has no attribute {name!r}. "
            f"Public names: {sorted(vars(sys.modules[package])['__all__'])}"
        )

    return get_attribute, lambda: sorted(names), list(names)
