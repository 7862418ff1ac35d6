"""Families whose attention knows distances by ALiBi; their `config.json` has BERT's `model_type`.

Sources: Press et al. 2022 (arXiv 2108.12409). For Jina BERT, the network of jina-embeddings-v2:
Günther et al. 2023 (2310.19923), jinaai/jina-bert-implementation. For MosaicBERT, which is also the
network of DNABERT-2: Portes et al. 2023 (2312.17482), mosaicml/examples, benchmarks/bert.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import ConfigError, require
from bert_tf.families.family import Family

_TYPE, _POSITIONS, _ALIBI = "model_type", "position_embedding_type", "alibi"
_JINA, _MOSAIC = "jina_bert", "mosaic_bert"
_FEED_FORWARD, _STARTING_SIZE = "feed_forward_type", "alibi_starting_size"
_ACTIVATIONS = {"geglu": "gelu", "reglu": "relu"}  # of gated feed-forwards
_GATED = {"gated_mlp": True, "mlp_bias": False, "mlp_output_bias": True}


def alibi_family(values: Mapping[str, Any]) -> str | None:
    """Returns which of these families a file with BERT's `model_type` is of, or None."""
    if values.get(_POSITIONS) == _ALIBI:
        return _JINA
    return _MOSAIC if _STARTING_SIZE in values else None


class _AlibiFamily(Family):
    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**super().write(values), _TYPE: "bert"}


class _JinaBert(_AlibiFamily):
    """Jina BERT, whose files say the kind of the feed-forward."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = {key: value for key, value in values.items() if key not in self.only}
        kind, activation = values.pop(_FEED_FORWARD, "original"), values.get("hidden_act", "gelu")
        fits = isinstance(kind, str) and _ACTIVATIONS.get(kind) == activation
        rule = f"must be one of {_ACTIVATIONS} with that hidden_act"
        require(fits, rule, ConfigError, **{_FEED_FORWARD: kind, "hidden_act": activation})
        return super().read(values)

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        kinds = {activation: kind for kind, activation in _ACTIVATIONS.items()}
        kind = kinds.get(values["hidden_act"])
        return {**super().write(values), _POSITIONS: _ALIBI, _FEED_FORWARD: kind}


def _code(repository: str, prefix: str) -> dict[str, str]:
    """Returns the `auto_map` with the classes of a repository that has code of its own."""
    heads = ("MaskedLM", "SequenceClassification")
    classes = {f"AutoModelFor{head}": f"{prefix}For{head}" for head in heads}
    classes = {"AutoModel": f"{prefix}Model", **classes}
    models = {key: f"{repository}--modeling_bert.{name}" for key, name in classes.items()}
    return {"AutoConfig": f"{repository}--configuration_bert.{prefix}Config", **models}


JINA_BERT = _JinaBert(
    "JinaBert",
    fixed={_POSITIONS: _ALIBI, _TYPE: _JINA, **_GATED},
    only={_POSITIONS: _ALIBI, "alibi_scaling": 1},
    others={"auto_map": _code("jinaai/jina-bert-implementation", "JinaBert")},
)
MOSAIC_BERT = _AlibiFamily(
    "Bert",
    defaults={"attention_probs_dropout_prob": 0.0},
    fixed={_POSITIONS: _ALIBI, _TYPE: _MOSAIC, **_GATED},
    others={_STARTING_SIZE: 512, "auto_map": _code("mosaicml/mosaic-bert-base", "Bert")},
)
