"""Reads the values of a configuration file by its `model_type`, and refuses other networks."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.json_schema import Kind, check, object_of
from bert_tf.errors import ConfigError, require
from bert_tf.families.network_families import BERT, BERT_GENERATION, FAMILIES, model_type_of

DECODER_KEYS = ("is_decoder", "add_cross_attention")
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
