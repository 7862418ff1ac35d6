"""Keras imports scikit-learn and matplotlib when they are used, and without collections."""

import json
import os

import pytest

from tests.tools.running import run_program

pytest.importorskip("sklearn", reason="needs scikit-learn")
pytest.importorskip("matplotlib", reason="needs matplotlib")

HEAVY = """
import json, sys
def heavy():
    return [name for name in ("sklearn", "matplotlib") if name in sys.modules]
def finders():
    return [f for f in sys.meta_path if type(f).__module__ == "bert_tf.base.quick_imports"]
"""
LAZY = f"""{HEAVY}
import gc, os, threading, types
import bert_tf
def whole_collections():
    return gc.get_stats()[2]["collections"]
before = whole_collections()
bert_tf.BertTextClassifier
import keras
found = {{"heavy": heavy(), "finders": len(finders())}}
found["collections"] = whole_collections() - before
found["pauses"] = not gc.isenabled() or gc.get_freeze_count() > 0

child = os.fork()
if not child:  # threads that use a module at once
    barrier, classes = threading.Barrier(8), []
    def use():
        barrier.wait()
        classes.append(keras.wrappers.SKLearnClassifier)
    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0 if len(classes) == 8 and len(set(classes)) == 1 else 1)
found["threads"] = os.waitpid(child, 0)[1]

found["warnings"] = getattr(keras.wrappers, "__warningregistry__", None) or heavy()
found["names"] = dir(keras.visualization)
import pandas, sklearn.base, sklearn.model_selection
def make(X, y):
    model = keras.Sequential([keras.layers.Dense(2, "softmax")])
    model.compile("sgd", "mse")
    return model
frame = pandas.DataFrame({{"a": [0.0, 1.0] * 8, "b": [1.0, 0.0] * 8}})
estimator = keras.wrappers.SKLearnClassifier(make, fit_kwargs={{"verbose": 0}})
classes = [0, 1] * 8
scores = sklearn.model_selection.cross_val_score(estimator, frame, pandas.Series(classes), cv=2)
found["scores"] = len(scores)
found["wrapped"] = isinstance(sklearn.base.clone(estimator), sklearn.base.BaseEstimator)
model = make(None, None)
found["losses"] = len(model.fit(frame, frame, verbose=0).history["loss"])
found["plots"] = callable(keras.visualization.plot_image_gallery)
modules = (keras.wrappers, keras.visualization)
found["ordinary"] = all(type(module) is types.ModuleType for module in modules)
print(json.dumps(found))
"""


def test_what_is_lazy_works_when_it_is_used():
    result = run_program("-c", LAZY)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    assert found.pop("names").count("plot_image_gallery") == 1
    assert found == {
        "heavy": [],
        "finders": 0,
        "collections": 0,
        "pauses": False,
        "threads": 0,
        "warnings": [],
        "scores": 2,
        "wrapped": True,
        "losses": 1,
        "plots": True,
        "ordinary": True,
    }


@pytest.mark.full
@pytest.mark.parametrize(
    ("first", "environment"),
    [("import tensorflow", {}), ("pass", {"BERT_TF_EAGER_IMPORTS": "1"})],
    ids=["TensorFlow is imported already", "switched off"],
)
def test_nothing_is_lazy(first, environment):
    program = f"{HEAVY}\n{first}\nimport bert_tf\nfound = len(finders())\nimport keras\n"
    program += "print(json.dumps([found, sorted(heavy())]))"
    result = run_program("-c", program, env={**os.environ, **environment})
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1]) == [0, ["matplotlib", "sklearn"]]
