"""One family of networks: what its `config.json` says, under which names."""

import dataclasses
from collections.abc import Mapping
from typing import Any

# The sizes of BERT-large.
LARGE = {
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
_ATTRIBUTE_MAP = ("hidden_size", "num_hidden_layers", "num_attention_heads")


@dataclasses.dataclass(frozen=True)
class Family:
    """One value of `model_type`."""

    class_prefix: str = "Bert"  # of its classes in `transformers`
    # Values that a file may lack, where they differ from BERT's.
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Values that all its networks have, and no key of the file.
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Fields of `BertConfig` -> the keys of the file, where they differ.
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Whether positions begin after the id of padding. The file then counts the rows of the table
    # and not the positions of a sequence.
    counts_padding_id: bool = False
    # Keys -> the value that they must have; None for keys that must be absent.
    only: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Keys that no field has -> the values to write unless the file that was read has others.
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    masked_lm_act: str | None = None  # of its masked-LM head; None for `hidden_act`
    # Whether its head of replaced tokens begins with LayerNorm of the vectors plus the first.
    detector_norm: bool = False
    # Whether its class without a head has a pooler. Otherwise only heads have one.
    has_pooler: bool = True
    # Whether its rotations turn neighbouring columns of a head (`checkpoints/columns_of_heads.py`).
    turns_neighbours: bool = False
    # Whether queries, keys and values are one tensor with those of each head together.
    joins_heads: bool = False

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values of a file under the names of `BertConfig`'s fields."""
        named = {field: values[key] for field, key in self.keys.items() if key in values}
        # Matches transformers: of BERT's names, it also reads those of `attribute_map`, which win.
        unknown = {*self.keys, *self.keys.values()} - {*_ATTRIBUTE_MAP}
        others = {key: value for key, value in values.items() if key not in unknown}
        values = {**self.defaults, **named, **others, **self.fixed}
        if self.counts_padding_id:
            values["position_offset"] = values.get("pad_token_id", 1) + 1
            if "max_position_embeddings" in values:
                values["max_position_embeddings"] -= values["position_offset"]
        if not self.fixed.get("shared_blocks") and "hidden_size" in values:
            if values.get("embedding_size") == values["hidden_size"]:
                values["embedding_size"] = None  # no dense layer between them
        return values

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the fields of a `BertConfig` as the values of a file."""
        values = dict(values)
        if self.counts_padding_id:
            values["max_position_embeddings"] += values.pop("position_offset", 0)
        if "embedding_size" in self.defaults:
            values.setdefault("embedding_size", values["hidden_size"])
        if "classifier_dropout" in self.defaults and values.get("classifier_dropout") is None:
            values["classifier_dropout"] = values["hidden_dropout_prob"]  # it must be a number
        kept = {field: value for field, value in values.items() if field not in self.fixed}
        return {self.keys.get(field, field): value for field, value in kept.items()}
