"""Families with rotary positions: how their `config.json` says the base of the angles.

Sources: `transformers`, modeling_rope_utils.py; configuration_nomic_bert.py, configuration_gte.py
and configuration_eurobert.py of version 5; vllm-project/vllm, ntk_scaling_rope.py. Nussbaum et al.
2024 (arXiv 2402.01613) for NomicBERT, Zhang et al. 2024 (2407.19669) for GTE, Boizard et al. 2025
(2503.05500) for EuroBERT, Su et al. 2021 (2104.09864) for RoFormer.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import ConfigError, require
from bert_tf.families.family import LARGE, Family


def base_of(parameters: Any, values: Mapping[str, Any]) -> float | None:
    """Returns the base in a value of `rope_parameters`, or None if there is none.

    Raises:
        ConfigError: If the angles are scaled: such positions are not implemented.
    """
    scaling = values.get("rope_scaling")
    require(
        scaling is None, "must be null: scaled angles are not implemented", rope_scaling=scaling
    )
    parameters = {} if parameters is None else parameters
    kind = parameters.get("rope_type", "default") if isinstance(parameters, Mapping) else None
    rule = "must be an object with the rope_type 'default'"
    require(kind == "default", rule, ConfigError, rope_parameters=parameters)
    return parameters.get("rope_theta")


def parameters_of(base: float) -> dict[str, Any]:
    """Returns the value of `rope_parameters` for a base."""
    return {"rope_type": "default", "rope_theta": base}


class RotaryFamily(Family):
    """A family in which all blocks have the same angles."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(values)
        base = base_of(values.pop("rope_parameters", None), values)
        values.pop("rope_scaling", None)
        size = values.pop("head_dim", None)
        hidden, heads = values.get("hidden_size", 768), values.get("num_attention_heads", 12)
        rule = "must be hidden_size / num_attention_heads"
        sizes = {"hidden_size": hidden, "num_attention_heads": heads}
        require(size in (None, hidden // heads), rule, ConfigError, head_dim=size, **sizes)
        return super().read({**values, **({} if base is None else {"rope_theta": base})})

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(super().write(values))
        return {**values, "rope_parameters": parameters_of(values.pop("rope_theta"))}


class _New(Family):
    """GTE as published by Alibaba-NLP, with code of its own: `model_type` "new"."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = {key: value for key, value in values.items() if key not in self.only}
        scaling = values.pop("rope_scaling", None) or {"type": "ntk", "factor": 1.0}
        is_ntk = isinstance(scaling, Mapping) and scaling.get("type") == "ntk"
        is_ntk = is_ntk and scaling.get("mixed_b") is None and "factor" in scaling
        rule = "must be null, or have the type 'ntk', a factor and no mixed_b"
        require(is_ntk, rule, ConfigError, rope_scaling=scaling)
        return super().read({**values, "rope_scaling_factor": scaling["factor"]})

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = {**super().write(values), **self.only}
        factor = values.pop("rope_scaling_factor")
        scaling = None if factor == 1.0 else {"type": "ntk", "factor": factor}
        return {**values, "rope_scaling": scaling}


class _EuroBert(RotaryFamily):
    """EuroBERT, whose masked-LM head has a table of its own unless the file says otherwise."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = super().read(values)
        is_tied = values.pop(_TIED, False)
        return {**values, _OUTPUT_SIZE: None if is_tied else values.get("hidden_size", 768)}

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(super().write(values))
        return {**values, _TIED: values.pop(_OUTPUT_SIZE, None) is None}


class _JinaEmbeddingsV3(RotaryFamily):
    """jina-embeddings-v3, also as published, with code of its own and XLM-R's `model_type`."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        base = {}
        if values.get("model_type") == "xlm-roberta":
            base = {"rope_theta": values.get(_BASE, 10_000.0)}
        others = (_POSITIONS, _BASE, "use_flash_attn", "auto_map")
        values = {key: value for key, value in values.items() if key not in others}
        return super().read({**values, **base})

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().write(values), "model_type": values["model_type"]}


class _NomicBert(RotaryFamily):
    """NomicBERT, whose published files have GPT-2's names of keys."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = {key: value for key, value in values.items() if key not in self.only}
        return super().read({_GPT2_KEYS.get(key, key): value for key, value in values.items()})


_POSITIONS, _BASE = "position_embedding_type", "rotary_emb_base"
_TIED, _OUTPUT_SIZE = "tie_word_embeddings", "output_embedding_size"
_GPT2_KEYS = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
    _BASE: "rope_theta",
}
_PLAIN = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_GATED = {_POSITIONS: "rotary", "gated_mlp": True}
NOMIC_BERT = _NomicBert(
    "NomicBert",
    defaults={
        **_PLAIN,
        "vocab_size": 30528,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rope_theta": 1000.0,
    },
    fixed={**_GATED, "attention_bias": False, "mlp_bias": False},
    only={
        "activation_function": "swiglu",
        "rotary_emb_fraction": 1.0,
        **dict.fromkeys(("prenorm", "parallel_block", "use_rms_norm", "causal"), False),
        **dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), False),
        "rotary_emb_interleaved": False,
        **dict.fromkeys(("rotary_scaling_factor", "rotary_emb_scale_base", "num_experts")),
    },
)
GTE = RotaryFamily(
    "Gte",
    defaults={
        "vocab_size": 250048,
        "attention_probs_dropout_prob": 0.0,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "max_position_embeddings": 8192,
        "rope_theta": 160_000.0,
    },
    fixed={**_GATED, "mlp_bias": False, "mlp_output_bias": True},
    masked_lm_act="gelu",
)
NEW = _New(
    "New",
    defaults={
        "vocab_size": 30528,
        "attention_probs_dropout_prob": 0.0,
        "type_vocab_size": 1,
        "max_position_embeddings": 2048,
        "rope_theta": 10_000.0,
        "rope_scaling_factor": 1.0,
    },
    fixed=GTE.fixed,
    only={
        "position_embedding_type": "rope",
        "layer_norm_type": "layer_norm",
        "pack_qkv": True,
        **dict.fromkeys(("logn_attention_scale", "logn_attention_clip1"), False),
    },
)
EUROBERT = _EuroBert(
    "EuroBert",
    defaults={
        **_PLAIN,
        "vocab_size": 128256,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 128001,
        "rope_theta": 10_000.0,
        "num_key_value_heads": None,
        "attention_bias": False,
        "mlp_bias": False,
    },
    fixed={
        **_GATED,
        "type_vocab_size": 0,
        "norm_first": True,
        "rms_norm": True,
        "pooler_act": "gelu",
        "pooler_use": "pooled",
        "embedding_norm": False,
        "masked_lm_transform": False,
    },
    keys={"layer_norm_eps": "rms_norm_eps", "attention_probs_dropout_prob": "attention_dropout"},
    has_pooler=False,
)
JINA_EMBEDDINGS_V3 = _JinaEmbeddingsV3(
    "JinaEmbeddingsV3",
    defaults={
        "vocab_size": 250002,
        **LARGE,
        "max_position_embeddings": 8194,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
        "rope_theta": 20_000.0,
    },
    fixed={_POSITIONS: "rotary", "model_type": "jina_embeddings_v3"},
    only={_POSITIONS: "rotary"},
    masked_lm_act="gelu",
)
# Its rotations turn columns 2 c and 2 c + 1 of a head (`checkpoints/columns_of_heads.py`).
ROFORMER = Family(
    "RoFormer",
    defaults={"vocab_size": 50000, "embedding_size": None, "max_position_embeddings": 1536},
    fixed={"position_embedding_type": "rotary", "pooler_act": "gelu"},
    only={"rotary_value": False, "hidden_act": "gelu"},
    has_pooler=False,
    turns_neighbours=True,
)
