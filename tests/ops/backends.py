"""The implementations that the tests of the ops go through.

The reference always; the native ops too unless BERT_TF_OPS=reference or they are not built (with
BERT_TF_OPS=native, as in CI, that is an error and not a silent pass).
"""

from bert_tf import ops

BACKENDS = ("reference", "native") if ops.active_backend() == "native" else ("reference",)
