"""The optional packages, and which extra of setup.py installs each.

A package is imported where it is used. Programs call `require_package` before any work.
docs/installation.md says what each extra is for.
"""

import contextlib
import importlib
import sys
import types
from collections.abc import Iterator

from bert_tf.errors import user_error

# The package and its extra, by the name of the module.
PACKAGES = {
    "ai_edge_litert": ("ai-edge-litert", "litert"),
    "aiohttp": ("aiohttp", "server"),
    "apache_beam": ("apache-beam", "beam"),
    "bm25s": ("bm25s", "search"),
    "faiss": ("faiss-cpu", "search"),
    "gensim": ("gensim", "baselines"),
    "grpc": ("grpcio", "grpc"),
    "grpc_health": ("grpcio-health-checking", "grpc"),
    "huggingface_hub": ("huggingface_hub", "hub"),
    "jieba": ("jieba", "chinese"),
    "keras_hub": ("keras-nlp", "augmentation"),
    "lit_nlp": ("lit-nlp", "inspection"),
    "matplotlib": ("matplotlib", "evaluate"),
    "mteb": ("mteb", "mteb"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "pandas": ("pandas", "tables"),
    "prometheus_client": ("prometheus-client", "server"),
    "pyarrow": ("pyarrow", "tables"),
    "pycrfsuite": ("python-crfsuite", "baselines"),
    "rouge_score": ("rouge-score", "generation"),
    "sacrebleu": ("sacrebleu", "generation"),
    "scipy": ("scipy", "search"),
    "sentencepiece": ("sentencepiece", "unigram"),
    "seqeval": ("seqeval", "tagging"),
    "sklearn": ("scikit-learn", "evaluate"),
    "tensorflow_serving": ("tensorflow-serving-api", "serving"),
    "tf2onnx": ("tf2onnx", "onnx"),
    "usearch": ("usearch", "search"),
}


def install_command(module: str) -> str:
    """Returns the command that installs the package of a module.

    Example:
        >>> install_command("sklearn.metrics")
        "pip install 'bert-tf[evaluate]'"
    """
    _, extra = PACKAGES[module.partition(".")[0]]
    return f"pip install 'bert-tf[{extra}]'"


def require_package(module: str, purpose: str) -> types.ModuleType:
    """Imports a module of an optional package.

    Args:
        module: Its name; the first part is one of `PACKAGES`.
        purpose: What it is needed for, such as "scores of spans".

    Returns:
        The module.

    Raises:
        UserError: If it cannot be imported. The message ends with the command that installs it.

    Example:
        >>> require_package("seqeval.metrics", "scores of spans").__name__
        'seqeval.metrics'
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package, _ = PACKAGES[module.partition(".")[0]]
        received = f"{error}. Run `{install_command(module)}`."
        raise user_error(package, f"be installed for {purpose}", received) from None


@contextlib.contextmanager
def without_packages(*names: str) -> Iterator[None]:
    """Makes these packages seem not to be installed in the block, unless they are imported.

    Keras imports some packages only because they are there. A program that does not need them
    imports Keras in this block, and takes less memory and time.

    Args:
        *names: Names of top-level packages.
    """
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # None makes `import` raise ModuleNotFoundError
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
