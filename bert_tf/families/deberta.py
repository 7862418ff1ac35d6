"""DeBERTa-v2 and v3: the scores of attention also depend on vectors of the distances of tokens.

Sources: He et al. 2021 (arXiv 2006.03654) and 2023 (2111.09543); `transformers`,
configuration_deberta_v2.py.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import ConfigError, require
from bert_tf.families.family import Family

_KINDS = {"c2p", "p2c"}  # content to position, and position to content


class _DebertaV2(Family):
    """The family, whose files have a list of kinds of scores."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(values)
        kinds = values.pop("pos_att_type", None)
        kinds = kinds.split("|") if isinstance(kinds, str) else kinds
        has_both = isinstance(kinds, list) and {str(kind).strip() for kind in kinds} == _KINDS
        require(has_both, "must be ['p2c', 'c2p']", ConfigError, pos_att_type=kinds)
        return super().read(values)

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().write(values), **self.only, "pos_att_type": ["p2c", "c2p"]}


DEBERTA_V2 = _DebertaV2(
    "DebertaV2",
    defaults={
        "vocab_size": 128100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "layer_norm_eps": 1e-7,
        "type_vocab_size": 0,
        "position_buckets": -1,
        "max_relative_positions": -1,
        "pooler_act": "gelu",
    },
    fixed={"position_embedding_type": "disentangled"},
    keys={"pooler_act": "pooler_hidden_act"},
    only={
        "relative_attention": True,
        "position_biased_input": False,
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "conv_kernel_size": 0,
        "legacy": True,
    },
    has_pooler=False,
)
