"""BigBird: BERT whose blocks of tokens attend to their neighbours and to random blocks.

Sources: Zaheer et al. 2020 (arXiv 2007.14062); `transformers`, configuration_big_bird.py.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import require
from bert_tf.families.family import Family

_TYPE, _FULL, _SPARSE = "attention_type", "original_full", "block_sparse"
_RANDOM = "num_random_blocks"


class _BigBird(Family):
    """The family, whose files have a number of random blocks also if attention is full."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = super().read(values)
        kind = values.pop(_TYPE, None) or _SPARSE
        require(kind in (_FULL, _SPARSE), f"must be {_FULL} or {_SPARSE}", attention_type=kind)
        return {**values, _RANDOM: None} if kind == _FULL else values

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(super().write(values))
        values[_TYPE] = _FULL if values.get(_RANDOM) is None else _SPARSE
        return values


BIG_BIRD = _BigBird(
    "BigBird",
    defaults={
        "vocab_size": 50358,
        "hidden_act": "gelu_new",
        "max_position_embeddings": 4096,
        _RANDOM: 3,
    },
    keys={"attention_block_size": "block_size"},
    only={"use_bias": True, "rescale_embeddings": False},
)
