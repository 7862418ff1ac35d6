"""The extension points of tasks: what subclasses in the package override of our base classes.

    python -m tests.extension_points

prints each with its overriders. A member is any method or class attribute of a base class except
the constructor. It counts once, for the first base class that defines it, also if a class overrides
it by a mixin.
"""

import importlib
import inspect
import pkgutil

import bert_tf
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.serving_module import ServingModule
from bert_tf.models.task_model import TaskModel
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.training.step_model import StepModel
from bert_tf.training.training_model import TrainingModel

# A base class comes after its own bases.
BASES = (StepModel, TrainingModel, TaskModel, DenseHeadModel, Preprocessor, ServingModule)
# What `class` statements and `dataclass` make.
_MADE = {"_abc_impl", "_parent_class_name"}


def extension_points() -> dict[str, list[str]]:
    """Returns the members that are overridden, `Base.member`, each with its overriders."""
    _import_all()
    found: dict[str, set[str]] = {}
    for base in BASES:
        members = {name for name in vars(base) if not name.startswith("__")} - _MADE
        for kind in _subclasses(base):
            for name in members:
                owner = _owner(kind, name)
                if owner is not base and owner not in base.__mro__:
                    first = next(one for one in BASES if name in vars(one) and one in base.__mro__)
                    found.setdefault(f"{first.__name__}.{name}", set()).add(owner.__name__)
    return {point: sorted(overriders) for point, overriders in sorted(found.items())}


def _owner(kind, name):
    return next(base for base in inspect.getmro(kind) if name in vars(base))


def _subclasses(base):
    found = [kind for kind in base.__subclasses__() if kind.__module__.startswith("bert_tf.")]
    return {*found, *(kind for one in found for kind in _subclasses(one))}


def _import_all():
    """Imports the modules of the package, but for programs, which read flags."""
    for package in pkgutil.iter_modules(bert_tf.__path__, "bert_tf."):
        if package.name != "bert_tf.tools" and not package.name.endswith("__main__"):
            _import_package(package)


def _import_package(module):
    imported = importlib.import_module(module.name)
    if module.ispkg:
        for inner in pkgutil.iter_modules(imported.__path__, module.name + "."):
            if not inner.name.rpartition(".")[2].startswith("_"):
                _import_package(inner)


if __name__ == "__main__":
    points = extension_points()
    for point, overriders in points.items():
        print(f"{point}: {', '.join(overriders)}")
    print(len(points))
