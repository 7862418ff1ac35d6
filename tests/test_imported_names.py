"""A name that a module imports means one thing in it: it is no parameter and no local."""

import ast

import pytest

from tests.conftest import REPOSITORY

FOLDERS = ("bert_tf", "tools", "benchmarks", "research")
FILES = {
    str(path.relative_to(REPOSITORY)): path
    for folder in FOLDERS
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
}


def imported_names(tree: ast.Module) -> set[str]:
    """The names that the statements at the top of a module import."""
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = [alias for node in imports for alias in node.names]
    return {(alias.asname or alias.name).split(".")[0] for alias in names}


def outermost_functions(node: ast.AST):
    """The functions that are in no other function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield child
        else:
            yield from outermost_functions(child)


def local_names(function: ast.AST) -> dict[str, int]:
    """The parameters and the names that are bound in a function, and their lines."""
    nodes = list(ast.walk(function))
    names = {node.arg: node.lineno for node in nodes if isinstance(node, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.setdefault(node.id, node.lineno)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.setdefault(node.name, node.lineno)
    return names


def shadowed(source: str) -> dict[str, int]:
    tree = ast.parse(source)
    found = map(local_names, outermost_functions(tree))
    imports = imported_names(tree)
    return {name: line for names in found for name, line in names.items() if name in imports}


def test_what_is_found():
    for body in (
        "def f(outputs): pass",
        "def f():\n    outputs = 1",
        "def f():\n    return [outputs for outputs in ()]",
        "key = lambda outputs: outputs",
        "def f():\n    try: pass\n    except OSError as outputs: pass",
    ):
        assert list(shadowed(f"from a.b import outputs\n{body}")) == ["outputs"], body
    assert not shadowed("from a.b import outputs\ndef f(x):\n    return outputs(x)")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_imported_name_is_shadowed(folder):
    found = {
        name: lines
        for name, path in FILES.items()
        if name.startswith(folder) and (lines := shadowed(path.read_text(encoding="utf-8")))
    }
    assert not found
