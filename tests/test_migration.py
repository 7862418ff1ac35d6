"""docs/migration.md names what is public in the libraries that people come from.

Their sources are parsed and not imported. The code of the document runs in test_documents.py.
"""

import ast
import importlib.util
import pathlib
import re

import pytest

from tests.checkpoints.transformers4_environment import installed_transformers4
from tests.conftest import REPOSITORY

# Public for technical reasons: nobody calls them.
NOT_CALLED = {
    "backbone",
    "build",
    "build_from_signature_list",
    "call",
    "compute_output_spec",
    "from_config",
    "get_config",
}


def words_of(section: str) -> set[str]:
    """The words of a section of the document."""
    text = (REPOSITORY / "docs" / "migration.md").read_text(encoding="utf-8")
    sections = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return set(re.findall(r"[\w-]+", sections[sections.index(section) + 1]))


def package(name: str) -> pathlib.Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        pytest.skip(f"needs {name.replace('_', '-')}")
    return pathlib.Path(spec.origin).parent


def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def listed(path) -> set[str]:
    """The names in a module's `__all__`."""
    for node in tree_of(path).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return set(ast.literal_eval(node.value))
    raise AssertionError(f"{path} has no __all__")


def definitions(path, kinds=(ast.ClassDef, ast.FunctionDef)) -> set[str]:
    """The public classes and functions of a module."""
    found = (node.name for node in tree_of(path).body if isinstance(node, kinds))
    return {name for name in found if not name.startswith("_")}


def methods(path) -> set[str]:
    """The public methods and properties of a module's classes, also nested in conditions."""
    classes = [node for node in tree_of(path).body if isinstance(node, ast.ClassDef)]
    found = (node.name for c in classes for node in c.body if isinstance(node, ast.FunctionDef))
    return {name for name in found if not name.startswith("_")}


def assert_named(section, names):
    missing = sorted(names - words_of(section) - NOT_CALLED)
    assert not missing, f"docs/migration.md, {section}, lacks {missing}"


def test_keras_hub():
    source = package("keras_hub") / "src"
    bert = [p for p in (source / "models" / "bert").glob("bert_*.py") if "presets" not in p.name]
    assert len(bert) > 6
    names = set().union(*(definitions(path, ast.ClassDef) | methods(path) for path in bert))
    for name in ("task", "backbone", "preprocessor", "text_classifier", "masked_lm"):
        names |= methods(source / "models" / f"{name}.py")
    for name in ("tokenizer", "word_piece_tokenizer"):
        names |= methods(source / "tokenizers" / f"{name}.py")
    assert len(names) > 45
    assert_named("keras-hub", names)


@pytest.mark.full
def test_transformers():
    python = installed_transformers4()
    (source,) = python.parent.parent.glob("lib/python*/site-packages/transformers")
    bert = source / "models" / "bert"
    names = listed(bert / "modeling_tf_bert.py") | listed(bert / "tokenization_bert_tf.py")
    names |= definitions(source / "optimization_tf.py") | definitions(source / "keras_callbacks.py")
    models = tree_of(source / "modeling_tf_utils.py").body
    for node in models:
        if getattr(node, "name", "") in ("TFPreTrainedModel", "TFModelUtilsMixin"):
            own = (n.name for n in node.body if isinstance(n, ast.FunctionDef))
            names |= {name for name in own if not name.startswith("_")}
    tasks = tree_of(source / "pipelines" / "__init__.py").body
    for node in tasks:
        if isinstance(node, ast.Assign) and node.targets[0].id == "SUPPORTED_TASKS":
            keys = {ast.literal_eval(key) for key in node.value.keys}
            names |= {key for key in keys if not re.search("image|audio|video|object|speech", key)}
    assert len(names) > 70
    assert_named(
        "transformers", names - {"mask-generation", "depth-estimation", "keypoint-matching"}
    )


@pytest.mark.full
def test_sentence_transformers():
    source = package("sentence_transformers")
    module = source / "sentence_transformer"
    names = listed(source / "__init__.py") | methods(module / "model.py")
    names |= methods(source / "base" / "model.py")
    names |= listed(module / "losses" / "__init__.py") | listed(module / "evaluation/__init__.py")
    assert len(names) > 100
    assert_named("sentence-transformers", names)
