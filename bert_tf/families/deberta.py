"""DeBERTa, v2 and v3: the scores of attention also depend on vectors of the distances of tokens.

Sources: He et al. 2021 (arXiv 2006.03654) and 2023 (2111.09543); `transformers`,
configuration_deberta.py and configuration_deberta_v2.py.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import ConfigError, require
from bert_tf.families.family import Family

_KINDS = {"c2p", "p2c"}  # content to position, and position to content
# Keys that a file must have, as `transformers` takes other values for them without.
_NEEDED = {"relative_attention": True, "position_biased_input": False}


class _Deberta(Family):
    """A family whose files have a list of kinds of scores."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(values)
        kinds = values.pop("pos_att_type", None)
        kinds = kinds.split("|") if isinstance(kinds, str) else kinds
        has_both = isinstance(kinds, list) and {str(kind).strip() for kind in kinds} == _KINDS
        require(has_both, "must be ['p2c', 'c2p']", ConfigError, pos_att_type=kinds)
        for key, value in _NEEDED.items():
            given = values.pop(key, None)
            require(given is value, f"must be {value}", ConfigError, **{key: given})
        values.pop("legacy", None)  # the masked-LM head is the same under either name
        return super().read(values)

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().write(values), **_NEEDED, "pos_att_type": ["p2c", "c2p"]}


_USUAL = {
    "layer_norm_eps": 1e-7,
    "type_vocab_size": 0,
    "max_relative_positions": -1,
    "pooler_act": "gelu",
}
_KEYS = {"pooler_act": "pooler_hidden_act", "classifier_dropout": "cls_dropout"}
DEBERTA = _Deberta(
    "Deberta",
    defaults={**_USUAL, "vocab_size": 50265},
    fixed={
        "position_embedding_type": "disentangled",
        "norm_rel_ebd": "none",
        "share_att_key": False,
        "key_bias": False,
    },
    keys=_KEYS,
    only={"talking_head": False, "pooler_dropout": 0},
    has_pooler=False,
    joins_heads=True,
)
DEBERTA_V2 = _Deberta(
    "DebertaV2",
    defaults={
        **_USUAL,
        "vocab_size": 128100,
        "hidden_size": 1536,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "share_att_key": False,
        "conv_kernel_size": 0,
        "conv_act": "tanh",
    },
    fixed={"position_embedding_type": "disentangled"},
    keys=_KEYS,
    only={"conv_groups": 1, "pooler_dropout": 0},
    has_pooler=False,
    detector_norm=True,
)
