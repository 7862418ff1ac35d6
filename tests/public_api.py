"""Prints the public names of bert_tf with their signatures.

    python -m tests.public_api > tests/public_api.txt

A name is public if a package lists it in `__all__`. First come functions, constants, and classes
with the arguments of their constructors, then the methods and properties of classes, each with the
classes that have it. Only what bert_tf defines is listed: what Keras gives is Keras's to keep.
"""

import collections
import importlib
import inspect
import re

import bert_tf


def lines() -> list[str]:
    """Returns the lines for all packages."""
    names, members = set(), collections.defaultdict(set)
    for package in ("bert_tf", *(f"bert_tf.{name}" for name in bert_tf._SUBPACKAGES)):
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if not inspect.ismodule(value):
                names.add(f"{package}.{name}{_signature(value)}")
            if inspect.isclass(value):
                for part in filter(lambda part: _is_ours(value, part), dir(value)):
                    members[part + _signature(getattr(value, part))].add(name)
    found = (f"{part}: {' '.join(sorted(owners))}" for part, owners in sorted(members.items()))
    return [*sorted(names), *found]


def _is_ours(owner, name):
    """Returns whether bert_tf defines this member of a class, a function or a property."""
    if name.startswith("_"):
        return False
    for base in owner.__mro__:
        if name in vars(base):
            value = vars(base)[name]
            is_function = isinstance(value, (classmethod, staticmethod, property))
            is_function = is_function or inspect.isfunction(value)
            return is_function and base.__module__.startswith("bert_tf")
    return False


def _signature(value):
    if not callable(value):
        return ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    shown = (_parameter(parameter) for parameter in signature.parameters.values())
    return f"({', '.join(shown)})"


def _parameter(parameter):
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    if parameter.default is parameter.empty:
        return star + parameter.name
    # Where an object lives is another number in every process.
    default = re.sub(r" at 0x[0-9a-f]+", "", repr(parameter.default))
    return f"{parameter.name}={default}"


if __name__ == "__main__":
    print("\n".join(lines()))
