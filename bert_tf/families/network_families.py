"""Networks that differ from BERT in a few options, and how their `config.json` says so.

Sources: `transformers`, configuration_*.py; Liu et al. 2019 (arXiv 1907.11692) for RoBERTa, Conneau
et al. 2020 (1911.02116) for XLM-R, Martin et al. 2020 (1911.03894) for CamemBERT, Sanh et al. 2019
(1910.01108) for DistilBERT, Clark et al. 2020 (2003.10555) for ELECTRA, Song et al. 2020
(2004.09297) for MPNet, Lan et al. 2020 (1909.11942) for ALBERT, Zaheer et al. 2020 (2007.14062) for
BigBird.
"""

from collections.abc import Mapping
from typing import Any

from bert_tf.errors import require
from bert_tf.families.alibi import JINA_BERT, MOSAIC_BERT, alibi_family
from bert_tf.families.deberta import DEBERTA, DEBERTA_V2
from bert_tf.families.ernie import ERNIE
from bert_tf.families.family import LARGE, Family
from bert_tf.families.modernbert import MODERNBERT
from bert_tf.families.rotary import EUROBERT, GTE, JINA_EMBEDDINGS_V3, NEW, NOMIC_BERT, ROFORMER

# Hugging Face's names (config.json, `model_type`).
BERT, BERT_GENERATION = "bert", "bert-generation"
BERTS = (BERT, BERT_GENERATION)  # their files have the same names
_COUNTED = {"max_position_embeddings": 512, "pad_token_id": 1}  # where padding is counted
_LIKE_ROBERTA = {"counts_padding_id": True, "masked_lm_act": "gelu"}
_RANDOM, _FULL, _SPARSE = "num_random_blocks", "original_full", "block_sparse"


class _BigBird(Family):
    """The family, whose files have a number of random blocks also if attention is full."""

    def read(self, values: Mapping[str, Any]) -> dict[str, Any]:
        values = super().read(values)
        kind = values.pop("attention_type", None) or _SPARSE
        require(kind in (_FULL, _SPARSE), f"must be {_FULL} or {_SPARSE}", attention_type=kind)
        return {**values, _RANDOM: None} if kind == _FULL else values

    def write(self, values: Mapping[str, Any]) -> dict[str, Any]:
        kind = _FULL if values.get(_RANDOM) is None else _SPARSE
        return {**super().write(values), "attention_type": kind}


FAMILIES = {
    # Keys of ALBERT in google-research's files, which have no model type.
    BERT: Family(only={"num_hidden_groups": None, "inner_group_num": None}),
    BERT_GENERATION: Family(
        "BertGeneration",
        defaults={"vocab_size": 50358, **LARGE, "bos_token_id": 2, "eos_token_id": 1},
        # Matches transformers: BertGeneration ignores a `type_vocab_size`.
        fixed={"type_vocab_size": 0},
    ),
    "roberta": Family("Roberta", {"vocab_size": 50265, **_COUNTED}, **_LIKE_ROBERTA),
    "xlm-roberta": Family("XLMRoberta", _COUNTED, **_LIKE_ROBERTA),
    "camembert": Family("Camembert", _COUNTED, **_LIKE_ROBERTA),
    "distilbert": Family(
        "DistilBert",
        defaults={"num_hidden_layers": 6, "classifier_dropout": 0.2},
        fixed={"type_vocab_size": 0, "pooler_act": "relu"},
        keys={
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
        },
        only={"layer_norm_eps": 1e-12},  # `transformers` ignores the key
    ),
    "electra": Family(
        "Electra",
        defaults={
            "embedding_size": 128,
            "hidden_size": 256,
            "num_attention_heads": 4,
            "intermediate_size": 1024,
        },
        fixed={"pooler_act": "gelu"},
        only={"summary_activation": "gelu", "summary_use_proj": True, "summary_type": "first"},
        masked_lm_act="gelu",
    ),
    "mpnet": Family(
        "MPNet",
        defaults={"vocab_size": 30527, "relative_attention_num_buckets": 32, **_COUNTED},
        fixed={"type_vocab_size": 0},
        **_LIKE_ROBERTA,
        only={"relative_attention_num_buckets": 32, "pad_token_id": 1},  # as in `transformers`
    ),
    "albert": Family(
        "Albert",
        defaults={
            "vocab_size": 30000,
            "embedding_size": 128,
            "hidden_size": 4096,
            "num_attention_heads": 64,
            "intermediate_size": 16384,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout": 0.1,
        },
        fixed={"shared_blocks": True},
        keys={"classifier_dropout": "classifier_dropout_prob"},
        only={"num_hidden_groups": 1, "inner_group_num": 1},
    ),
    "roberta-prelayernorm": Family(
        "RobertaPreLayerNorm",
        {"vocab_size": 50265, **_COUNTED},
        fixed={"norm_first": True},
        **_LIKE_ROBERTA,
    ),
    "xlm-roberta-xl": Family(
        "XLMRobertaXL",
        defaults={
            "vocab_size": 250880,
            "hidden_size": 2560,
            "num_hidden_layers": 36,
            "num_attention_heads": 32,
            "intermediate_size": 10240,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "max_position_embeddings": 514,
            "pad_token_id": 1,
        },
        fixed={"norm_first": True, "embedding_norm": False},
        **_LIKE_ROBERTA,
    ),
    "megatron-bert": Family(
        "MegatronBert",
        defaults={"vocab_size": 29056, **LARGE},
        fixed={"norm_first": True, "embedding_norm": False},
    ),
    "rembert": Family(
        "RemBert",
        defaults={
            "vocab_size": 250300,
            "embedding_size": 256,
            "output_embedding_size": 1664,
            "hidden_size": 1152,
            "num_hidden_layers": 32,
            "num_attention_heads": 18,
            "intermediate_size": 4608,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "classifier_dropout": 0.1,
        },
        keys={
            "embedding_size": "input_embedding_size",
            "classifier_dropout": "classifier_dropout_prob",
        },
        only={"tie_word_embeddings": False},
    ),
    "big_bird": _BigBird(
        "BigBird",
        defaults={
            "vocab_size": 50358,
            "hidden_act": "gelu_new",
            "max_position_embeddings": 4096,
            _RANDOM: 3,
        },
        keys={"attention_block_size": "block_size"},
        only={"use_bias": True, "rescale_embeddings": False},
    ),
    "jina_bert": JINA_BERT,
    "mosaic_bert": MOSAIC_BERT,
    "ernie": ERNIE,
    "deberta": DEBERTA,
    "deberta-v2": DEBERTA_V2,
    "modernbert": MODERNBERT,
    "nomic_bert": NOMIC_BERT,
    "gte": GTE,
    "new": NEW,
    "roformer": ROFORMER,
    "eurobert": EUROBERT,
    "model2vec": Family(
        "Static",
        defaults={"ignored_token_ids": ()},
        fixed={
            **dict.fromkeys(("num_hidden_layers", "type_vocab_size"), 0),
            **dict.fromkeys(("num_attention_heads", "intermediate_size"), 1),
            **dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0),
            "position_embedding_type": "none",
            "embedding_norm": False,
            "max_position_embeddings": 1_000_000,  # model2vec's `seq_length`, for no limit
        },
        keys={"hidden_size": "hidden_dim"},
        has_pooler=False,
    ),
    "jina_embeddings_v3": JINA_EMBEDDINGS_V3,
}


def model_type_of(values: Mapping[str, Any], default: str) -> str:
    """Returns the family of a `config.json`; `default` is that of one without a `model_type`.

    Networks with code of their own may have the `model_type` of another family.
    """
    name = values.get("model_type") or default
    if name == BERT:
        return alibi_family(values) or name
    is_rotary = name == "xlm-roberta" and values.get("position_embedding_type") == "rotary"
    return "jina_embeddings_v3" if is_rotary else name
