"""Every example in a docstring runs as it is written, and what it shows is what comes out.

An example has what its reader has: TensorFlow, NumPy, Keras, `bert_tf` with its public names, what
its own module defines, `texts` and `labels`, and a folder with the files that
`tests/example_files.py` makes. Output that an example does not show is not compared.
"""

import ast
import doctest
import importlib
import io
import os
import re
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from tests.conftest import REPOSITORY
from tests.example_files import LABELS, TEXTS, write_docstring_files

SOURCES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts): path.read_text(encoding="utf-8")
    for folder in ("bert_tf", "bert_tf/tools/common", "research/baselines")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
}
PACKAGES = [name.removesuffix(".__init__") for name in SOURCES if name.endswith(".__init__")]
# Examples that do not run in the tests, and why.
SKIPPED = {
    "research.baselines.word_vectors": "needs gensim, an optional package",
    "bert_tf.inspection.lit_model": "needs lit-nlp, an optional package",
    "bert_tf.text.tokenizer": "one of two needs jieba, an optional package",
    "bert_tf.text.whole_words": "needs jieba, an optional package",
    "bert_tf.training.evaluation.generated_text": "needs sacrebleu and rouge-score, optional",
}
# Examples that `make test` leaves to the full suite.
SLOW = {
    "bert_tf.tasks.sentence_embedding.encoding_pool",  # starts two processes
    # They export as the example of `bert_tf.serving.export`; tests/serving calls the functions.
    "bert_tf.serving.comparison",
    "bert_tf.serving.description",
}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class ShownOutput(doctest.OutputChecker):
    """Compares what an example shows; one that shows nothing may print."""

    def check_output(self, want, got, optionflags):
        return not want or super().check_output(want, got, optionflags)


@pytest.fixture(scope="module")
def example_files(tmp_path_factory, tiny_vocabulary):
    directory = tmp_path_factory.mktemp("examples")
    write_docstring_files(directory, tiny_vocabulary)
    return directory


@pytest.fixture(autouse=True)
def values_alone(eager_steps):
    """No progress bars before what `predict` gives, and no graphs, which take longer to trace."""
    keras.config.disable_interactive_logging()
    tf.config.run_functions_eagerly(True)
    yield
    keras.config.enable_interactive_logging()
    tf.config.run_functions_eagerly(False)


def own_names(module: types.ModuleType) -> dict:
    return {
        name: value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    }


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in SLOW else ())
        for name, source in SOURCES.items()
        if ">>>" in source
    ],
)
def test_examples_run(name, example_files, tmp_path, monkeypatch):
    for path in example_files.iterdir():
        os.symlink(path, tmp_path / path.name)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name.removesuffix(".__init__"))
    known = {name: getattr(bert_tf, name) for name in bert_tf.__all__}
    known |= own_names(module) | {"bert_tf": bert_tf, "keras": keras, "np": np, "tf": tf}
    known |= {"texts": list(TEXTS), "labels": list(LABELS)}
    runner = doctest.DocTestRunner(ShownOutput(), verbose=False, optionflags=FLAGS)
    printed = io.StringIO()
    try:
        for test in doctest.DocTestFinder(exclude_empty=True).find(module, globs=known):
            runner.run(test, out=printed.write)
    finally:  # the example of `register_task`: what asks all specs would look for its package
        bert_tf.tasks._register([])
    assert runner.summarize(verbose=False).attempted > 0
    assert runner.failures == 0, printed.getvalue()


def docstrings(source: str):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            yield ast.get_docstring(node) or ""


def test_examples_have_one_form():
    """A section `Example:` whose lines begin with `>>> `, and no other code."""
    for name, source in SOURCES.items():
        for text in docstrings(source):
            sections = len(re.findall(r"^Example:\n    >>> \S", text, re.MULTILINE))
            assert sections == len(re.findall(r"^\s*Examples?:|\n.*::\n", text, re.MULTILINE)), text
            assert sections == (">>>" in text) and "```" not in text, (name, text)


def test_only_listed_examples_are_skipped():
    assert {name for name, source in SOURCES.items() if "+SKIP" in source} == set(SKIPPED)


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_have_examples(package):
    package = importlib.import_module(package)
    named = {name: getattr(package, name) for name in getattr(package, "__all__", ())}
    assert not [
        name
        for name, value in named.items()
        if callable(value) and not (isinstance(value, type) and issubclass(value, Exception))
        if ">>>" not in (value.__doc__ or "")
    ]
