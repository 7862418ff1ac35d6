"""Builds the API reference from the docstrings: `make docs`.

    python docs/build_reference.py --output_dir=.cache/reference

A name that does not resolve, or a docstring that cannot be read, ends it.
"""

import argparse
import importlib
import pathlib
import pkgutil
import sys
import warnings

import pdoc

import bert_tf

# Not part of the API: the local server's inside, and programs.
LEFT_OUT = ("bert_tf.server", "bert_tf.ops._", "bert_tf.tools")


def resolve_names() -> None:
    """Imports all modules, and the public names that are otherwise imported on first use."""
    for module in pkgutil.walk_packages(bert_tf.__path__, "bert_tf."):
        if not module.name.startswith(LEFT_OUT):
            importlib.import_module(module.name)
    packages = [module for name, module in sys.modules.items() if name.startswith("bert_tf.")]
    for package in [*packages, bert_tf]:
        for name in getattr(package, "__all__", ()):
            vars(package)[name] = getattr(package, name)  # pdoc looks there


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    output_dir = parser.parse_args().output_dir
    resolve_names()
    pdoc.render.configure(docformat="google", show_source=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        left_out = [f"!{name}" for name in LEFT_OUT]
        pdoc.pdoc("bert_tf", *left_out, output_directory=output_dir)
    print(f"The API reference is in {output_dir / 'index.html'}")


if __name__ == "__main__":
    main()
