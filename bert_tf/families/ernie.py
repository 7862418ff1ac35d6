"""ERNIE: BERT with one more embedding for each token, that of the task.

Sources: Sun et al. 2020 (arXiv 1907.12412), section 3.2; `transformers`, configuration_ernie.py.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.families.family import Family

_USED, _SIZE = "use_task_id", "task_type_vocab_size"


class _Ernie(Family):
    """The family, whose files have a number of tasks also if the network has none."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = super().read(values)
        size = values.get(_SIZE) or 3
        return {**values, _SIZE: size if values.pop(_USED, False) else None}

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = super().write(values)
        return {**values, _USED: _SIZE in values, _SIZE: values.get(_SIZE, 3)}


ERNIE = _Ernie("Ernie", defaults={_SIZE: None})
