"""ModernBERT: rotary positions, alternating windows, GeGLU and pre-LN without biases.

Sources: Warner et al. 2024 (arXiv 2412.13663); `transformers`, configuration_modernbert.py, whose
version 5 writes the angles as `rope_parameters` and the windows as `layer_types`.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import ConfigError, require
from bert_tf.families.family import Family
from bert_tf.families.rotary import base_of, parameters_of

_WIDE, _LOCAL = "full_attention", "sliding_attention"
_THETAS = {_WIDE: "global_rope_theta", _LOCAL: "local_rope_theta"}
_EVERY, _WINDOW = "global_attn_every_n_layers", "local_attention"


class _ModernBert(Family):
    """The family, which has the width of its window and the angles in keys of its own."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(values)
        parameters = values.pop("rope_parameters", None) or {}
        rule = "must be an object"
        require(isinstance(parameters, Mapping), rule, ConfigError, rope_parameters=parameters)
        for kind, key in _THETAS.items():
            base = base_of(parameters.get(kind), values)
            values |= {} if base is None else {key: base}
        width = values.pop(_WINDOW, 128)
        is_width = type(width) is int and width >= 0
        require(is_width, "must be an integer of at least 0", ConfigError, local_attention=width)
        values["attention_window"] = width // 2  # on either side
        kinds = values.pop("layer_types", None)
        if kinds is not None:
            num_layers = values.get("num_hidden_layers", 22)
            values[_EVERY] = _period(kinds, num_layers, values.get(_EVERY))
        return super().read(values)

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(super().write(values))
        values[_WINDOW] = 2 * values.pop("attention_window", 64)
        num_layers, base = values["num_hidden_layers"], values[_THETAS[_WIDE]]
        values["layer_types"] = _kinds_of_blocks(values.get(_EVERY), num_layers)
        bases = {kind: values.setdefault(key, base) for kind, key in _THETAS.items()}
        values["rope_parameters"] = {kind: parameters_of(bases[kind]) for kind in bases}
        return values


def _kinds_of_blocks(every: int | None, num_layers: int) -> list[str]:
    """Returns `layer_types`: the first of `every` blocks attends to whole sequences."""
    is_wide = [every is not None and place % every == 0 for place in range(num_layers)]
    return [_WIDE if is_one else _LOCAL for is_one in is_wide]


def _period(kinds: Any, num_layers: int, named: Any) -> int | None:
    """Returns every how many blocks attend to whole sequences, None for no block.

    Few blocks fit several periods. The one that the file names is taken if it fits.

    Raises:
        ConfigError: If `kinds`, the value of `layer_types`, has no such period.
    """
    named = [named] if type(named) is int and named > 0 else []
    for every in (*named, None, *range(1, num_layers + 1)):
        if kinds == _kinds_of_blocks(every, num_layers):
            return every
    rule = f"must be {_WIDE} for every n-th block from the first, else {_LOCAL}"
    require(False, rule, ConfigError, layer_types=kinds)


MODERNBERT = _ModernBert(
    "ModernBert",
    defaults={
        "vocab_size": 50368,
        "hidden_size": 768,
        "num_hidden_layers": 22,
        "num_attention_heads": 12,
        "intermediate_size": 1152,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.0,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 50283,
        "rope_theta": 160_000.0,
        "local_rope_theta": 10_000.0,
        _EVERY: 3,
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "pooler_act": "gelu",
    },
    fixed={
        "type_vocab_size": 0,
        "position_embedding_type": "rotary",
        "norm_first": True,
        "first_block_norm": False,
        "gated_mlp": True,
        "pooler_norm": True,
        "pooler_use": "tokens",
        "num_global_tokens": 0,
    },
    keys={
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "embedding_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
        "rope_theta": "global_rope_theta",
        "pooler_act": "classifier_activation",
    },
    only={"mlp_dropout": 0.0, "decoder_bias": True, "tie_word_embeddings": True},
    has_pooler=False,
)
