"""`import bert_tf` is light: what is heavy is loaded where it is used."""

import pkgutil

from tests.tools.running import run_program

PROGRAM = """
import logging, sys, time
logging.basicConfig(level=logging.INFO)
import tensorflow as tf
import keras
before = set(sys.modules)
start = time.perf_counter()
import bert_tf
bert_tf.BertConfig, bert_tf.BertBackbone, bert_tf.BertTextClassifier, bert_tf.training
seconds = time.perf_counter() - start
bert_tf.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good"])
from bert_tf.ops import native
assert native._loaded is None  # the ops load when one is used
added = {name.split(".")[0] for name in set(sys.modules) - before}
print(seconds, *sorted(added & {"keras_hub", "keras_nlp", "tensorflow_text", "sklearn", "torch"}))
"""


def test_import_loads_nothing_heavy():
    result = run_program("-c", PROGRAM)
    assert result.returncode == 0, result.stderr
    seconds, *heavy = result.stdout.split()
    assert not heavy
    # A second is the promise on a quiet machine; far more means something heavy crept in.
    assert float(seconds) < 5.0


def test_every_public_name_is_there():
    import bert_tf

    for name in bert_tf.__all__:
        assert getattr(bert_tf, name) is not None
    assert sorted(bert_tf.__all__) == dir(bert_tf)


def test_no_module_takes_the_place_of_a_public_name():
    import bert_tf.data

    modules = {module.name for module in pkgutil.iter_modules(bert_tf.data.__path__)}
    assert not modules & set(bert_tf.data.__all__)
    assert all(getattr(bert_tf.data, name) is not None for name in bert_tf.data.__all__)
