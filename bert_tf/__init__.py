"""BERT for TensorFlow and Keras 3.

Public names are imported when they are first used, so that `import bert_tf` is fast.

Example:
    >>> names = ["bad", "good"]
    >>> model = bert_tf.BertTextClassifier.from_pretrained("bert-base/", labels=names)
    >>> history = model.fit(texts, labels, epochs=1)
    >>> answers = model.classify(["a good film", "bad ."])
    >>> model.save_pretrained("my_model/")

`help(bert_tf.BertTextClassifier.from_pretrained)` shows the options of a class.
"""

import importlib
import pkgutil

from bert_tf import tasks
from bert_tf.base.lazy_names import lazy_names
from bert_tf.base.quick_imports import make_imports_quick

make_imports_quick()

# All but the programs.
_SUBPACKAGES = [m.name for m in pkgutil.iter_modules(__path__) if m.ispkg and m.name != "tools"]

__version__ = "0.1.0"
_get_name, _, _names = lazy_names(
    __name__,
    {
        "BertConfig": ".config",
        "BertTokenizer": ".text.tokenizer",
        "BertBackbone": ".models.backbone",
        "register_task": ".tasks",
        **{spec.model: spec.model_module for spec in tasks.specs()},
    },
)
__all__ = [*_names, *_SUBPACKAGES]  # noqa: PLE0604
_classes = "\n".join(f"    {spec.name:28}{spec.model}" for spec in tasks.specs())
__doc__ = f"{__doc__}\nThe classes by task:\n\n{_classes}\n"


def __dir__():
    return sorted(__all__)


def __getattr__(name):
    if name in _SUBPACKAGES:
        return importlib.import_module(f"bert_tf.{name}")
    return _get_name(name)
