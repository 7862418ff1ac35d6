"""`import bert_tf` is light: what is heavy is loaded where it is used."""

import importlib
import inspect
import json
import pkgutil
import re

import pytest

import bert_tf
from tests.conftest import REPOSITORY
from tests.tools.running import run_program

PACKAGES = [
    "bert_tf",
    *(
        module.name
        for module in pkgutil.walk_packages(bert_tf.__path__, "bert_tf.")
        if module.ispkg and not module.name.startswith("bert_tf.tools")  # programs define flags
    ),
]
PROGRAM = """
import importlib, json, logging, os, sys, time, traceback
logging.basicConfig(level=logging.INFO)
import tensorflow as tf
import keras
sys.modules["tensorflow_text"] = None  # its import fails, as where it has no wheels (Windows)

alone = {}  # modules, each in a fork that has imported nothing else of the package
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    alone[name] = os.waitpid(child, 0)[1]

before = set(sys.modules)
start = time.perf_counter()
import bert_tf
bert_tf.BertConfig, bert_tf.BertBackbone, bert_tf.BertTextClassifier, bert_tf.training
seconds = time.perf_counter() - start
bert_tf.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"])
from bert_tf.ops import loading, native
added = {name.split(".")[0] for name in set(sys.modules) - before}
heavy = sorted(added & {"keras_hub", "keras_nlp", "sklearn", "torch"})
ops = loading.loaded is not None
print(json.dumps({"seconds": seconds, "heavy": heavy, "ops": ops, "alone": alone}))
"""


@pytest.fixture(scope="module")
def imported(is_full):
    """What one fresh process found out; in the full suite of each module that a tool imports."""
    names = {f"bert_tf.{name}" for name in bert_tf._SUBPACKAGES}
    if is_full:
        texts = [path.read_text(encoding="utf-8") for path in REPOSITORY.glob("tools/*.py")]
        found = {name for text in texts for name in re.findall(r"from (bert_tf[\w.]*) imp", text)}
        assert len(found) > 20
        names |= found
    result = run_program("-c", PROGRAM, *sorted(names))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), result.stderr


def test_import_loads_nothing_heavy(imported):
    found, _ = imported
    assert not found["heavy"]
    assert not found["ops"]  # they load when one is used
    # A second is the promise on a quiet machine; far more means something heavy crept in.
    assert found["seconds"] < 5.0


def test_every_subpackage_can_be_imported_first(imported):
    """Forked tools cannot show it: all of the package was imported before them."""
    found, printed = imported
    assert found["alone"] and not any(found["alone"].values()), printed


def test_every_public_name_is_there():
    for name in bert_tf.__all__:
        assert getattr(bert_tf, name) is not None
    assert sorted(bert_tf.__all__) == dir(bert_tf)


@pytest.mark.parametrize("name", PACKAGES)
def test_no_module_takes_the_place_of_a_public_name(name):
    package = importlib.import_module(name)
    names = getattr(package, "__all__", ())
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):  # those are the built ops
            importlib.import_module(f"{name}.{module.name}")
    found = [public for public in names if inspect.ismodule(getattr(package, public))]
    assert name == "bert_tf" or not found  # there packages are public names
    if hasattr(package, "__getattr__"):
        with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'nothing'"):
            package.nothing  # noqa: B018
