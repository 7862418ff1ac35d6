"""Functions that pass on their arguments show the signature of the function that takes them."""

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def has_signature_of(
    other: Callable[_Arguments, _Result],
) -> Callable[[Callable], Callable[_Arguments, _Result]]:
    """Gives a function `(*args, **kwargs)` the signature of another, for `help` and editors.

    Unlike `functools.wraps`, it sets no `__wrapped__`, whose source AutoGraph would convert.
    """

    def decorate(function):
        function.__signature__ = inspect.signature(other)
        function.__annotations__ = dict(getattr(other, "__annotations__", {}))
        return function

    return decorate
