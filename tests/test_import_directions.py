"""Imports run one way: no cycles, nothing from a package above, none hidden inside functions."""

import ast
import graphlib

import pytest

from bert_tf.tasks import NAMES as TASKS
from tests.conftest import REPOSITORY

MODULES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((REPOSITORY / "bert_tf").rglob("*.py"))
}
# From below to above: a package imports from those before it. docs/ARCHITECTURE.md has the picture.
PACKAGES = (
    "base",
    "ops",
    "text",
    "layers",
    "inputs",
    "training",
    "generation",
    "models",
    "tasks",
    "adapt",
    "checkpoints",
    "serving",
    "search",
    "server",
    "inspection",
    "beam",
)


def imported_names(path):
    """The names that a file imports, with their modules, and whether a function does it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            yield name, id(node) in inside


def imported(path):
    """The modules of this package that a file imports, and whether a function does it."""
    for name, in_function in imported_names(path):
        module = name if name in MODULES else name.rpartition(".")[0]
        if module in MODULES:
            yield module, in_function


IMPORTS = {name: list(imported(path)) for name, path in MODULES.items()}


def test_no_cycles():
    graph = {name: {m for m, _ in found if m != name} for name, found in IMPORTS.items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("name", MODULES)
def test_only_from_below(name):
    package = name.split(".")[1] if "." in name else None
    for module, in_function in IMPORTS[name]:
        assert not in_function, f"{module} is imported inside a function"
        other = module.split(".")[1] if "." in module else None
        if package in PACKAGES and other in PACKAGES:
            assert PACKAGES.index(other) <= PACKAGES.index(package), f"{module} is above"


@pytest.mark.parametrize(
    "folder, above",
    [
        ("bert_tf", ("bert_tf.tools.", "benchmarks.", "research.")),
        ("tools", ("benchmarks.", "research.")),
        ("research", ("benchmarks.",)),
    ],
)
def test_programs_are_above_the_package(folder, above):
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        if path != REPOSITORY / "bert_tf" / "__main__.py":
            found = [name for name, _ in imported_names(path) if name.startswith(above)]
            assert not found, path


# A task whose heads are those of another one, so that they open each other's checkpoints.
BUILT_ON = {
    "cross_encoder": {"text_classification"},
    "multiple_choice": {"text_classification"},
    "prefix_lm": {"masked_lm"},
    "pretraining": {"masked_lm", "next_sentence_prediction"},
    "sparse_embedding": {"masked_lm"},
    "text_classification": {"masked_lm"},
}


def test_tasks_do_not_import_each_other():
    found = {}
    for name, modules in IMPORTS.items():
        task = task_of(name)
        others = {task_of(module) for module, _ in modules} - {task, None}
        if task and others:
            found[task] = found.get(task, set()) | others
    assert found == BUILT_ON


def task_of(module):
    """The folder of `bert_tf.tasks` that a module is in, or None."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["tasks"] and parts[2:3] and parts[2] in TASKS else None
