"""What the fork server of `processes.py` imports: all of this package, and what it imports late.

Nothing here may start a thread: a process that is forked has only the one that forked it.
"""

import gc
import importlib
import importlib.util
import pkgutil

import aiohttp.web  # noqa: F401
import keras  # noqa: F401
import tensorflow  # noqa: F401
import tensorflow_text  # noqa: F401

import bert_tf
import tests.tools.running  # noqa: F401
from tests.conftest import keep_no_stacks, optimize_graphs

HAS_BEAM = importlib.util.find_spec("apache_beam") is not None  # optional
for module in pkgutil.walk_packages(bert_tf.__path__, "bert_tf."):
    if module.name.startswith("bert_tf.beam.") and not HAS_BEAM:
        continue
    if module.name.startswith("bert_tf.tools."):  # their flags have the same names
        continue
    if not module.name.rpartition(".")[2].startswith("_"):  # the ops' shared objects
        importlib.import_module(module.name)

optimize_graphs(False)
keep_no_stacks()
gc.freeze()  # no process looks through all this, which takes 0.3 s and copies its memory
