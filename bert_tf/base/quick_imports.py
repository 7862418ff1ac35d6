"""Makes the import of TensorFlow and Keras quick.

`import tensorflow` imports all of Keras, and Keras's wrappers and pictures import scikit-learn and
matplotlib because they are there: a third of the time of the import (Keras 3.15; 3.10 and newer
have the same modules). These modules of Keras are therefore run when one of their names is first
used. The public ones are `keras.wrappers` and `keras.visualization`; `keras.src.visualization` is
private, and Keras imports it itself. The standard library's `LazyLoader` is not safe in threads
before Python 3.12.

The import makes 400,000 objects that stay. The garbage collector would look at them again and
again, which takes a seventh of the time until a model answers. It therefore pauses.
"""

import contextlib
import gc
import importlib.util
import os
import sys
import threading
import types

EAGER = "BERT_TF_EAGER_IMPORTS"
_LAZY = ("keras.wrappers", "keras.visualization", "keras.src.visualization")
_ROOTS = ("keras", "tensorflow")
_lock = threading.RLock()


def make_imports_quick() -> None:
    """Makes the next import of TensorFlow or Keras quick; does nothing if one is imported already.

    The environment variable `BERT_TF_EAGER_IMPORTS=1` switches it off.
    """
    is_imported = "tensorflow" in sys.modules or "keras" in sys.modules
    if not is_imported and os.environ.get(EAGER) != "1":
        sys.meta_path.insert(0, _Finder())


@contextlib.contextmanager
def _without_collections():
    """Pauses the garbage collector; what is made meanwhile then counts as old."""
    if not gc.isenabled() or gc.get_freeze_count():  # someone else has taken care of it
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()
        gc.enable()


class _Finder:
    """An entry of `sys.meta_path` that is removed once all modules that it waits for came."""

    def __init__(self):
        self._waiting = {*_LAZY, *_ROOTS}

    def find_spec(self, name, path=None, target=None):
        if name not in self._waiting:
            return None
        self._waiting.remove(name)
        if not self._waiting:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        if name in _LAZY:
            spec.loader = _Loader(spec.loader)
            return spec
        execute = spec.loader.exec_module

        def execute_without_collections(module):
            del spec.loader.exec_module  # an ordinary loader again
            with _without_collections():
                execute(module)

        spec.loader.exec_module = execute_without_collections
        return spec


class _Loader:
    """A loader whose module is run later."""

    def __init__(self, loader):
        self.loader = loader
        self.is_running = False

    def create_module(self, spec):
        return _LazyModule(spec.name)

    def exec_module(self, module):
        """Does nothing: `_LazyModule` runs the module."""


class _LazyModule(types.ModuleType):
    """A module that is run when a name that it does not have yet is first used."""

    def __getattr__(self, name):
        # Python's own tools look for `__warningregistry__` and the like in all modules.
        if not name.startswith("__") or name == "__all__":
            self._run()
        return types.ModuleType.__getattribute__(self, name)

    def __dir__(self):
        self._run()
        return types.ModuleType.__dir__(self)

    def _run(self):
        with _lock:
            lazy = self.__spec__.loader
            # Another thread has run it, or this thread is running it now.
            if not isinstance(lazy, _Loader) or lazy.is_running:
                return
            lazy.is_running = True
            try:
                lazy.loader.exec_module(self)
                self.__spec__.loader = self.__loader__ = lazy.loader
                self.__class__ = types.ModuleType
            finally:
                lazy.is_running = False
