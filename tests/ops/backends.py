"""The implementations that the tests of the ops go through.

The reference always; the native ops too unless BERT_TF_OPS=reference or they are not built (with
BERT_TF_OPS=native, as in CI, that is an error and not a silent pass). A run that chooses an
instruction set (BERT_TF_ISA) tests the native ops alone: the reference does not depend on it.
"""

import os

from bert_tf import ops

if ops.active_backend() != "native":
    BACKENDS = ("reference",)
elif "BERT_TF_ISA" in os.environ:
    BACKENDS = ("native",)
else:
    BACKENDS = ("reference", "native")
