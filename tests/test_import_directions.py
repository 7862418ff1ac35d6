"""Imports run one way: no cycles, nothing from a package above, none hidden inside functions."""

import ast
import functools
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
    "sklearn",
)


def imports_of(path):
    """Yields the module and the name of each import of a file, and whether a function does it.

    The name is None for `import module`.
    """
    nodes = [(ast.parse(path.read_text(encoding="utf-8")), False)]
    while nodes:
        node, in_function = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((alias.name, None, in_function) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module, alias.name, in_function) for alias in node.names)
        in_function = in_function or isinstance(node, ast.FunctionDef)
        children = ast.iter_child_nodes(node)
        nodes += [(child, in_function) for child in children if not isinstance(child, ast.expr)]


@functools.cache
def imports_of_package():
    """What `imports_of` yields, by the module of this package."""
    return {name: list(imports_of(path)) for name, path in MODULES.items()}


def imported_modules():
    """The modules of this package that each one imports, and whether a function does it."""
    found = {}
    for importer, imports in imports_of_package().items():
        names = ((f"{module}.{name}", module, is_inside) for module, name, is_inside in imports)
        modules = ((n if n in MODULES else m, is_inside) for n, m, is_inside in names)
        found[importer] = [(m, is_inside) for m, is_inside in modules if m in MODULES]
    return found


def test_no_cycles():
    graph = {name: {m for m, _ in found if m != name} for name, found in imported_modules().items()}
    assert list(graphlib.TopologicalSorter(graph).static_order())


def test_only_from_below():
    wrong = []
    for name, modules in imported_modules().items():
        package = package_of(name)
        for module, in_function in modules:
            if in_function:
                wrong.append(f"{name}: {module} is imported inside a function")
            other = package_of(module)
            if package in PACKAGES and other in PACKAGES:
                if PACKAGES.index(other) > PACKAGES.index(package):
                    wrong.append(f"{name}: {module} is above")
    assert not wrong


def package_of(module):
    """The package of `bert_tf` that a module is in, or None."""
    return module.split(".")[1] if "." in module else None


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
            names = (f"{module}.{name}" for module, name, _ in imports_of(path))
            found = [name for name in names if name.startswith(above)]
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
    for name, modules in imported_modules().items():
        task = task_of(name)
        others = {task_of(module) for module, _ in modules} - {task, None}
        if task and others:
            found[task] = found.get(task, set()) | others
    assert found == BUILT_ON


def task_of(module):
    """The folder of `bert_tf.tasks` that a module is in, or None."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["tasks"] and parts[2:3] and parts[2] in TASKS else None
