"""What a base class leaves to its subclasses, each of them has."""

import importlib
import inspect
import pkgutil

import bert_tf

_EITHER = {"head": "call"}  # a task has one of them
_NEEDS_EXTRA = ("bert_tf.beam", "bert_tf.server", "bert_tf.sklearn", "bert_tf.tools")


def _modules():
    for module in pkgutil.walk_packages(bert_tf.__path__, "bert_tf."):
        if not module.name.startswith(_NEEDS_EXTRA) and "._" not in module.name:
            yield importlib.import_module(module.name)


def _methods_left_to_subclasses():
    for module in _modules():
        for kind in vars(module).values():
            if inspect.isclass(kind) and kind.__module__ == module.__name__:
                for name, method in vars(kind).items():
                    code = getattr(method, "__code__", None)
                    if code is not None and "NotImplementedError" in code.co_names:
                        yield kind, name


def _leaves(kind):
    below = kind.__subclasses__()
    return [leaf for each in below for leaf in _leaves(each)] if below else [kind]


def _has(leaf, kind, name):
    is_made_with_it = name in getattr(leaf.__init__, "__code__", _leaves.__code__).co_names
    return is_made_with_it or getattr(leaf, name) is not getattr(kind, name)


def test_every_subclass_has_what_its_base_leaves_to_it():
    found = list(_methods_left_to_subclasses())
    assert len(found) > 8
    for kind, name in found:
        for leaf in _leaves(kind):
            if leaf is not kind and leaf.__module__.startswith("bert_tf."):
                names = (name, _EITHER.get(name, name))
                assert any(_has(leaf, kind, n) for n in names), f"{leaf.__name__} lacks {name}"
