"""Reads the values of a configuration file by its `model_type`, and refuses other networks.

google-research/bert's `bert_config.json` lacks keys, and has another meaning of "gelu".
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.json_schema import Kind, check, object_of
from bert_tf.errors import ConfigError, require
from bert_tf.families.network_families import BERT, BERT_GENERATION, FAMILIES, model_type_of

# Names in configuration files -> the name used here, an entry in layers/activation.py.
ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "gelu_fast": "gelu_new",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
# Keys that only Hugging Face writes. One of them shows that it wrote the file.
_HUGGINGFACE_KEYS = {
    "model_type",
    "architectures",
    "transformers_version",
    "layer_norm_eps",
    "_name_or_path",
}
# The keys for values that google-research/bert's file has no keys for.
TF1_KEY, EXACT_GELU = "bert_tf_config", "bert_tf_exact_gelu"
_TF1_DEFAULTS = {"hidden_act": "gelu", "type_vocab_size": 16}  # google-research/bert modeling.py
_TF1_EXTRA = ("id2label", "label2id", "problem_type")
DECODER_KEYS = ("is_decoder", "add_cross_attention")
# Keys by which a file makes transformers before 5.3 run code of the hub (CVE-2026-4372, -5241).
CODE_KEYS = ("trust_remote_code", "_attn_implementation", "_attn_implementation_internal")
CODE_KEYS += ("_experts_implementation", "_experts_implementation_internal")
# Keys of all families that would change the network, with the only values that are supported.
_ONLY_VALUES = {"position_embedding_type": "absolute", **dict.fromkeys(DECODER_KEYS, False)}
_ONLY_BERT = "bert_tf implements BERT encoders only"
_NETWORKS = ", ".join(sorted(FAMILIES))


def fields_of_file(
    values: Mapping[str, Any],
    kinds: Mapping[str, Kind],
    switches: Sequence[str],
    checkpoint: Any = None,
) -> dict[str, Any]:
    """Returns the values of a file under the names of `BertConfig`'s fields.

    Args:
        values: The values of the file.
        kinds: The kinds of the fields.
        switches: The fields that only some families have.
        checkpoint: The `BertConfig` that has the values which the file lacks, instead of the
            family; or None.

    Raises:
        ConfigError: If the network is another one.
    """
    name = model_type_of(values, checkpoint.model_type if checkpoint else BERT)
    rule = f"must be one of {_NETWORKS}: see docs/checkpoints.md"
    require(name in FAMILIES, rule, model_type=name)
    family = FAMILIES[name]
    only = {key: value for key, value in _ONLY_VALUES.items() if key not in family.fixed}
    for key, value in {**only, **family.only}.items():
        rule = f"must be {value!r} for model_type={name!r}: see docs/checkpoints.md"
        require(values.get(key) in (None, value), rule, **{key: values.get(key)})
    keys = {key: kinds[field] for field, key in family.keys.items()}
    check(values, object_of(keys), None, ConfigError)
    if name == BERT:
        size = values.get("type_vocab_size")
        rule = f"must be positive without model_type={BERT_GENERATION!r}"
        require(size != 0, rule, type_vocab_size=size)
        _refuse_other_networks(values)
    # A switch that the family does not have is an unknown key, which does nothing. Null means
    # the family's default.
    unknown = {*switches} - {*family.defaults}
    nulls = {family.keys.get(field, field) for field in {*family.defaults} & {*kinds}}
    nulls = {key for key in nulls if values.get(key) is None}
    values = {key: value for key, value in values.items() if key not in unknown | nulls}
    if checkpoint:
        family = dataclasses.replace(family, defaults={"pad_token_id": checkpoint.pad_token_id})
    if family.counts_padding_id:
        least = values.get("pad_token_id", family.defaults["pad_token_id"]) + 2
        size = values.get("max_position_embeddings", least)
        require(size >= least, f"must be at least {least}", max_position_embeddings=size)
    return family.read(values)


def is_huggingfaces(path: str | os.PathLike, values: Mapping[str, Any]) -> bool:
    """Returns whether Hugging Face wrote a file, and not google-research/bert."""
    return os.path.basename(path) == "config.json" or bool(_HUGGINGFACE_KEYS & {*values})


def fields_of_tf1(
    values: Mapping[str, Any], fields: dict[str, Any], own: Sequence[str], has_defaults: bool
) -> dict[str, Any]:
    """Returns the fields of `BertConfig` in the `values` of a file of google-research/bert.

    `fields` are those of them that are fields, `own` those that are below `TF1_KEY`. `has_defaults`
    says whether another configuration has what the file lacks. Raises `ConfigError` if the file has
    no vocabulary size.
    """
    if "vocab_size" not in values:
        raise ConfigError(f"`vocab_size` must be given. Received: keys={sorted(values)}.")
    fields = {**({} if has_defaults else _TF1_DEFAULTS), **fields}
    if fields.get("hidden_act") == "gelu" and not values.get(EXACT_GELU):
        # Matches google-research/bert: its "gelu" is the tanh approximation.
        fields["hidden_act"] = "gelu_new"
    below = values.get(TF1_KEY) or {}
    return fields | {key: below[key] for key in own if key in below}


def values_of_tf1(
    values: dict[str, Any], defaults: Mapping[str, Any], own: Sequence[str]
) -> dict[str, Any]:
    """Returns what `fields_of_tf1` reads, for the result of `BertConfig.to_dict`.

    The `own` fields are written below `TF1_KEY`, if they differ from the `defaults`.
    """
    extra = values.pop("extra")
    below = {name: values.pop(name) for name in own if name in values}
    below = {name: value for name, value in below.items() if value != defaults.get(name)}
    if below:
        values[TF1_KEY] = below
    values.update({key: extra[key] for key in _TF1_EXTRA if key in extra})
    if values["hidden_act"] == "gelu":
        values[EXACT_GELU] = True
    elif values["hidden_act"] == "gelu_new":
        values["hidden_act"] = "gelu"
    return values


def _refuse_other_networks(values) -> None:
    """Refuses a file of another network whose keys show it."""
    size, hidden_size = values.get("embedding_size"), values.get("hidden_size")
    is_equal = size is None or hidden_size is None or size == hidden_size
    rule = f"must be `hidden_size`: {_ONLY_BERT}"
    require(is_equal, rule, embedding_size=size, hidden_size=hidden_size)
    architectures = values.get("architectures")
    is_bert = any("Bert" in name.replace("DistilBert", "") for name in architectures or ())
    is_known = is_bert or not architectures or values.get("model_type") is not None
    require(is_known, f"must be BERT's: {_ONLY_BERT}", architectures=architectures)
