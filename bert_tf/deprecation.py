"""Old names, which work for one more release."""

import warnings
from collections.abc import Callable


def warn_renamed(old: str, new: str) -> None:
    """Warns that a name has changed, at the line that calls the caller of this function."""
    message = f"`{old}` is now `{new}`. The old name will be removed in the next release."
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def renamed_method(old: str, new: str) -> Callable:
    """Returns a method `old` that calls the method `new`."""

    def method(self, *args, **kwargs):
        warn_renamed(old, new)
        return getattr(self, new)(*args, **kwargs)

    method.__name__ = old
    method.__doc__ = f"The old name of `{new}`."
    return method
