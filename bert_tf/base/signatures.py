"""Functions that pass on their arguments show the signature of the function that takes them."""

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def has_signature_of(
    other: Callable[_Arguments, _Result], **added: Any
) -> Callable[[Callable], Callable[_Arguments, _Result]]:
    """Gives a function `(*args, **kwargs)` the signature of another, for `help` and editors.

    `added` are further keyword arguments of the function, with their defaults.

    Unlike `functools.wraps`, it sets no `__wrapped__`, whose source AutoGraph would convert.
    """

    def decorate(function):
        signature = inspect.signature(other)
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in added.items()
        ]
        function.__signature__ = signature.replace(
            parameters=[*signature.parameters.values(), *more]
        )
        function.__annotations__ = dict(getattr(other, "__annotations__", {}))
        return function

    return decorate
