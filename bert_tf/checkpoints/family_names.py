"""The names of the layers and classes of a family in files of Hugging Face.

`by_bert_names` reads a file of one of the `network_families`, which call the layers that BERT has
by other names; `names_of` gives these back when a model is written. Names are those of BERT's
without the prefix of the encoder.

Source: `transformers`, modeling_*.py.
"""

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np

from bert_tf.base.tensor_source import RenamedSource, SplitSource, TensorSource
from bert_tf.checkpoints.columns_of_heads import (
    check_table,
    halves_of_heads,
    heads_apart,
    heads_together,
    pairs_of_heads,
    position_table,
)
from bert_tf.config import BertConfig
from bert_tf.families.network_families import BERT, BERT_GENERATION, FAMILIES

# The endings of the names of a family's classes -> of BERT's with the same heads.
_SEQUENCE, _CHOICE = "ForSequenceClassification", "ForMultipleChoice"
_TAGS, _ANSWERS = "ForTokenClassification", "ForQuestionAnswering"
_MOST = {name: name for name in ("Model", "ForMaskedLM", _SEQUENCE, _TAGS, _ANSWERS, _CHOICE)}
_FEW = {name: name for name in ("Model", "ForMaskedLM", _SEQUENCE, _TAGS)}
_NO_CHOICE = {name: name for name in _MOST if name != _CHOICE}
_CLASSES = {
    BERT_GENERATION: {"Encoder": "Model"},
    "albert": {**_MOST, "ForPreTraining": "ForPreTraining"},
    "electra": {**_MOST, "ForPreTraining": "ForReplacedTokenDetection"},
    "nomic_bert": _FEW,
    "gte": _FEW,
    "new": _MOST,
    "roformer": _NO_CHOICE,
    "deberta": _NO_CHOICE,
    "jina_embeddings_v3": _NO_CHOICE,
    "eurobert": _FEW,
    "mosaic_bert": {name: name for name in ("Model", "ForMaskedLM", _SEQUENCE)},
    "big_bird": {name: name for name in ("Model", "ForMaskedLM", _TAGS, _CHOICE, "ForPreTraining")},
    "model2vec": {"Model": "Model"},
}
_ONLY = {  # what only a class with this ending writes
    "classifier.dense": _SEQUENCE,
    "classifier.out_proj": _SEQUENCE,
    "sequence_summary.summary": _CHOICE,
}
_CLASSIFIER = {"classifier.dense": "pooler.dense", "classifier.out_proj": "classifier"}
_BLOCK, _ALBERT_BLOCK = "encoder.layer.{}", "encoder.albert_layer_groups.{}.albert_layers.0"
_QUERY_KEY_VALUE = tuple(f"{_BLOCK}.attention.self.{role}" for role in ("query", "key", "value"))
_ROBERTA = {
    **_CLASSIFIER,
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.layer_norm": "cls.predictions.transform.LayerNorm",
    "lm_head": "cls.predictions",
}
_GTE = {
    f"{_BLOCK}.attention.qkv_proj": _QUERY_KEY_VALUE,
    f"{_BLOCK}.attention.o_proj": f"{_BLOCK}.attention.output.dense",
    f"{_BLOCK}.attn_ln": f"{_BLOCK}.attention.output.LayerNorm",
    f"{_BLOCK}.mlp.up_gate_proj": (f"{_BLOCK}.intermediate.up", f"{_BLOCK}.intermediate.gate"),
    f"{_BLOCK}.mlp.down_proj": f"{_BLOCK}.output.dense",
    f"{_BLOCK}.mlp_ln": f"{_BLOCK}.output.LayerNorm",
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.norm": "cls.predictions.transform.LayerNorm",
    "lm_head.decoder.bias": "cls.predictions.bias",
    "lm_head": "cls.predictions",
}
_ALIBI = {
    f"{_BLOCK}.mlp.gated_layers": (f"{_BLOCK}.intermediate.gate", f"{_BLOCK}.intermediate.up"),
    f"{_BLOCK}.mlp.wo": f"{_BLOCK}.output.dense",
    f"{_BLOCK}.mlp.layernorm": f"{_BLOCK}.output.LayerNorm",
}
# How names begin, of theirs -> ours; {} is the number of a block. The first that fits is applied.
# Several names of ours are of the parts of a tensor, one after the other.
_RULES = {
    "jina_bert": _ALIBI,
    "mosaic_bert": {f"{_BLOCK}.attention.self.Wqkv": _QUERY_KEY_VALUE, **_ALIBI},
    "big_bird": {"pooler": "pooler.dense"},
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": {
        f"{_BLOCK}.attention.attn.q": f"{_BLOCK}.attention.self.query",
        f"{_BLOCK}.attention.attn.k": f"{_BLOCK}.attention.self.key",
        f"{_BLOCK}.attention.attn.v": f"{_BLOCK}.attention.self.value",
        f"{_BLOCK}.attention.attn.o": f"{_BLOCK}.attention.output.dense",
        f"{_BLOCK}.attention.LayerNorm": f"{_BLOCK}.attention.output.LayerNorm",
        **_ROBERTA,
    },
    "distilbert": {
        "pre_classifier": "pooler.dense",
        "transformer.layer.{}.attention.q_lin": f"{_BLOCK}.attention.self.query",
        "transformer.layer.{}.attention.k_lin": f"{_BLOCK}.attention.self.key",
        "transformer.layer.{}.attention.v_lin": f"{_BLOCK}.attention.self.value",
        "transformer.layer.{}.attention.out_lin": f"{_BLOCK}.attention.output.dense",
        "transformer.layer.{}.sa_layer_norm": f"{_BLOCK}.attention.output.LayerNorm",
        "transformer.layer.{}.ffn.lin1": f"{_BLOCK}.intermediate.dense",
        "transformer.layer.{}.ffn.lin2": f"{_BLOCK}.output.dense",
        "transformer.layer.{}.output_layer_norm": f"{_BLOCK}.output.LayerNorm",
        "vocab_transform": "cls.predictions.transform.dense",
        "vocab_layer_norm": "cls.predictions.transform.LayerNorm",
        "vocab_projector.bias": "cls.predictions.bias",
        "vocab_projector.weight": "cls.predictions.decoder.weight",
    },
    "electra": {
        **_CLASSIFIER,
        "sequence_summary.summary": "pooler.dense",
        "generator_predictions.dense": "cls.predictions.transform.dense",
        "generator_predictions.LayerNorm": "cls.predictions.transform.LayerNorm",
        "generator_lm_head.bias": "cls.predictions.bias",
        "generator_lm_head.weight": "cls.predictions.decoder.weight",
    },
    "albert": {
        "encoder.embedding_hidden_mapping_in": "embeddings_project",
        f"{_ALBERT_BLOCK}.attention.dense": f"{_BLOCK}.attention.output.dense",
        f"{_ALBERT_BLOCK}.attention.LayerNorm": f"{_BLOCK}.attention.output.LayerNorm",
        f"{_ALBERT_BLOCK}.attention": f"{_BLOCK}.attention.self",
        f"{_ALBERT_BLOCK}.ffn_output": f"{_BLOCK}.output.dense",
        f"{_ALBERT_BLOCK}.ffn": f"{_BLOCK}.intermediate.dense",
        f"{_ALBERT_BLOCK}.full_layer_layer_norm": f"{_BLOCK}.output.LayerNorm",
        "pooler": "pooler.dense",
        "predictions.dense": "cls.predictions.transform.dense",
        "predictions.LayerNorm": "cls.predictions.transform.LayerNorm",
        "predictions": "cls.predictions",
        "sop_classifier.classifier": "cls.seq_relationship",
    },
    "roberta-prelayernorm": {
        f"{_BLOCK}.attention.LayerNorm": f"{_BLOCK}.attention.output.LayerNorm",
        f"{_BLOCK}.intermediate.LayerNorm": f"{_BLOCK}.output.LayerNorm",
        "LayerNorm": "encoder.final_norm",
        **_ROBERTA,
    },
    "xlm-roberta-xl": {
        f"{_BLOCK}.attention.self_attn_layer_norm": f"{_BLOCK}.attention.output.LayerNorm",
        f"{_BLOCK}.LayerNorm": f"{_BLOCK}.output.LayerNorm",
        "encoder.LayerNorm": "encoder.final_norm",
        **_ROBERTA,
    },
    "rembert": {
        "encoder.embedding_hidden_mapping_in": "embeddings_project",
        "cls.predictions.dense": "cls.predictions.transform.dense",
        "cls.predictions.LayerNorm": "cls.predictions.transform.LayerNorm",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    "megatron-bert": {
        f"{_BLOCK}.attention.ln": f"{_BLOCK}.attention.output.LayerNorm",
        f"{_BLOCK}.ln": f"{_BLOCK}.output.LayerNorm",
        "encoder.ln": "encoder.final_norm",
    },
    "deberta": {
        f"{_BLOCK}.attention.self.in_proj": _QUERY_KEY_VALUE,
        f"{_BLOCK}.attention.self.pos_proj": f"{_BLOCK}.attention.self.pos_key_proj",
        f"{_BLOCK}.attention.self.pos_q_proj": f"{_BLOCK}.attention.self.pos_query_proj",
    },
    "deberta-v2": {
        f"{_BLOCK}.attention.self.{role}_proj": f"{_BLOCK}.attention.self.{role}"
        for role in ("query", "key", "value")
    },
    "model2vec": {"embeddings": "embeddings.word_embeddings.weight"},
    "modernbert": {
        "embeddings.tok_embeddings": "embeddings.word_embeddings",
        "embeddings.norm": "embeddings.LayerNorm",
        "layers.{}.attn_norm": f"{_BLOCK}.attention.output.LayerNorm",
        "layers.{}.attn.Wqkv": _QUERY_KEY_VALUE,
        "layers.{}.attn.Wo": f"{_BLOCK}.attention.output.dense",
        "layers.{}.mlp_norm": f"{_BLOCK}.output.LayerNorm",
        "layers.{}.mlp.Wi": (f"{_BLOCK}.intermediate.gate", f"{_BLOCK}.intermediate.up"),
        "layers.{}.mlp.Wo": f"{_BLOCK}.output.dense",
        "final_norm": "encoder.final_norm",
    },
    "nomic_bert": {
        "emb_ln": "embeddings.LayerNorm",
        "encoder.layers.{}.attn.Wqkv": _QUERY_KEY_VALUE,
        "encoder.layers.{}.attn.out_proj": f"{_BLOCK}.attention.output.dense",
        "encoder.layers.{}.norm1": f"{_BLOCK}.attention.output.LayerNorm",
        "encoder.layers.{}.mlp.fc11": f"{_BLOCK}.intermediate.up",
        "encoder.layers.{}.mlp.fc12": f"{_BLOCK}.intermediate.gate",
        "encoder.layers.{}.mlp.fc2": f"{_BLOCK}.output.dense",
        "encoder.layers.{}.norm2": f"{_BLOCK}.output.LayerNorm",
        "cls.predictions.transform.layer_norm": "cls.predictions.transform.LayerNorm",
    },
    "gte": _GTE,
    "new": _GTE,
    "jina_embeddings_v3": {
        "layers.{}.self_attn.q_proj": f"{_BLOCK}.attention.self.query",
        "layers.{}.self_attn.k_proj": f"{_BLOCK}.attention.self.key",
        "layers.{}.self_attn.v_proj": f"{_BLOCK}.attention.self.value",
        "layers.{}.self_attn.o_proj": f"{_BLOCK}.attention.output.dense",
        "layers.{}.post_attention_layernorm": f"{_BLOCK}.attention.output.LayerNorm",
        "layers.{}.mlp.fc1": f"{_BLOCK}.intermediate.dense",
        "layers.{}.mlp.fc2": f"{_BLOCK}.output.dense",
        "layers.{}.post_mlp_layernorm": f"{_BLOCK}.output.LayerNorm",
        **_ROBERTA,
        "embeddings.LayerNorm": "embeddings.LayerNorm",
        # Published files have these names, which are not written.
        "emb_ln": "embeddings.LayerNorm",
        "encoder.layers.{}.mixer.Wqkv": _QUERY_KEY_VALUE,
        "encoder.layers.{}.mixer.out_proj": f"{_BLOCK}.attention.output.dense",
        "encoder.layers.{}.norm1": f"{_BLOCK}.attention.output.LayerNorm",
        "encoder.layers.{}.mlp.fc1": f"{_BLOCK}.intermediate.dense",
        "encoder.layers.{}.mlp.fc2": f"{_BLOCK}.output.dense",
        "encoder.layers.{}.norm2": f"{_BLOCK}.output.LayerNorm",
    },
    "eurobert": {
        "embed_tokens": "embeddings.word_embeddings",
        "layers.{}.self_attn.q_proj": f"{_BLOCK}.attention.self.query",
        "layers.{}.self_attn.k_proj": f"{_BLOCK}.attention.self.key",
        "layers.{}.self_attn.v_proj": f"{_BLOCK}.attention.self.value",
        "layers.{}.self_attn.o_proj": f"{_BLOCK}.attention.output.dense",
        "layers.{}.mlp.gate_proj": f"{_BLOCK}.intermediate.gate",
        "layers.{}.mlp.up_proj": f"{_BLOCK}.intermediate.up",
        "layers.{}.mlp.down_proj": f"{_BLOCK}.output.dense",
        "layers.{}.input_layernorm": f"{_BLOCK}.attention.output.LayerNorm",
        "layers.{}.post_attention_layernorm": f"{_BLOCK}.output.LayerNorm",
        "norm": "encoder.final_norm",
        "lm_head.weight": "cls.predictions.decoder.weight",
        "lm_head.bias": "cls.predictions.bias",
    },
}
# Names that are read and not written: of the heads in DeBERTa's published files.
_READ = {
    "lm_predictions.lm_head.dense": "cls.predictions.transform.dense",
    "lm_predictions.lm_head.LayerNorm": "cls.predictions.transform.LayerNorm",
    "lm_predictions.lm_head": "cls.predictions",
    "mask_predictions.dense": "discriminator_predictions.dense",
    "mask_predictions.LayerNorm": "discriminator_predictions.LayerNorm",
    "mask_predictions.classifier": "discriminator_predictions.dense_prediction",
}
_POOLER = "pooler.dense"
_PREDICTION_HEAD = {"head.dense": _POOLER, "head.norm": "pooler.layer_norm"}
# Rules for the classes with an ending, where one name of theirs is another layer for each class.
_HEAD_RULES = {
    "modernbert": {
        "ForMaskedLM": {
            "head.dense": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
            "decoder.bias": "cls.predictions.bias",
            "decoder.weight": "cls.predictions.decoder.weight",
        },
        _ANSWERS: {**_PREDICTION_HEAD, "classifier": "qa_outputs"},
        **dict.fromkeys((_SEQUENCE, _TAGS, _CHOICE), _PREDICTION_HEAD),
    },
    "eurobert": {_SEQUENCE: {"dense": _POOLER}},
    "roformer": {_SEQUENCE: _CLASSIFIER},
    "deberta": {_SEQUENCE: {_POOLER: _POOLER}},
    "deberta-v2": {ending: {_POOLER: _POOLER} for ending in (_SEQUENCE, _CHOICE)},
}
# Layers whose names begin with one of these have the prefix of the encoder.
_ENCODER_PARTS = (
    *("embeddings", "encoder", "transformer", "pooler", "layers", "final_norm", "norm"),
    *("embed_tokens", "emb_ln", "LayerNorm"),
)
_BERT_PREFIX = "bert."
_JOINT = re.compile(r"\.attention\.self\.in_proj\.weight$")  # of DeBERTa
_TURNED = re.compile(r"encoder\.layer\.\d+\.attention\.self\.(query|key)\.")
# What precedes the names of the encoder's layers in models with a head. All modules of XLM-R and
# CamemBERT are RoBERTa's.
_PREFIXES = {name: f"{name}." for name in FAMILIES} | {BERT_GENERATION: _BERT_PREFIX}
_LIKE_ROBERTA = ("xlm-roberta", "camembert", "xlm-roberta-xl", "jina_embeddings_v3")
_PREFIXES |= dict.fromkeys(_LIKE_ROBERTA, "roberta.")
_PREFIXES |= dict.fromkeys(("megatron-bert", "jina_bert", "mosaic_bert", "big_bird"), _BERT_PREFIX)
_PREFIXES["roberta-prelayernorm"] = "roberta_prelayernorm."
_PREFIXES["deberta-v2"] = "deberta."
_PREFIXES |= dict.fromkeys(("modernbert", "eurobert"), "model.")


def _classes(model_type: str) -> dict[str, str]:
    """Returns BERT's classes -> those of the family with the same heads."""
    prefix, endings = FAMILIES[model_type].class_prefix, _CLASSES.get(model_type, _MOST)
    return {f"Bert{ours}": prefix + theirs for theirs, ours in endings.items()}


def bert_class(name: str, model_type: str) -> str:
    """Returns BERT's class for one of a family, as `BertForMaskedLM` for `RobertaForMaskedLM`."""
    return {theirs: ours for ours, theirs in _classes(model_type).items()}.get(name, name)


def family_class(name: str, model_type: str) -> str | None:
    """Returns a family's class for one of BERT's, or None if the family has none."""
    return name if model_type == BERT else _classes(model_type).get(name)


def by_bert_names(source: TensorSource, config: BertConfig, architecture: str) -> TensorSource:
    """Returns the tensors of a family's file, of the class `architecture`, by BERT's names."""
    model_type = config.model_type
    prefix = _PREFIXES[model_type]
    translate = _translation(model_type, reads=True, architecture=architecture)
    if FAMILIES[model_type].joins_heads:
        names = {name: name for name in source.shapes}
        change = functools.partial(_in_order, heads_apart, config.head_size, _JOINT)
        source = RenamedSource(source, names, change=change)
    parts = {name: translate(name.removeprefix(prefix)) for name in source.shapes}
    source = SplitSource(source, {name: ours for name, ours in parts.items() if _is_joint(ours)})
    ours = {name: translate(name.removeprefix(prefix)) for name in source.shapes}
    # Old files of classifiers also have an untrained pooler: what a rule has renamed is used,
    # and the other tensor keeps its own name.
    renamed_last = sorted(ours, key=lambda name: ours[name] != name.removeprefix(prefix))
    winners = {ours[name]: name for name in renamed_last}
    names = {ours[name] if winners[ours[name]] == name else name: name for name in source.shapes}
    in_file = _translation(model_type, reads=False, architecture=architecture)
    change = None
    if FAMILIES[model_type].turns_neighbours:
        check_table(source, config.head_size)
        change = functools.partial(_in_order, halves_of_heads, config.head_size, _TURNED)
    return RenamedSource(source, names, in_file=in_file, change=change)


def _in_order(order, head_size, pattern, name, values):
    """Returns the values of a tensor, in another order of columns if the pattern fits its name."""
    return order(values, head_size) if pattern.search(name) else values


def names_of(tensors: Mapping[str, np.ndarray], config: BertConfig, architecture: str) -> dict:
    """Returns tensors by a family's names, for the class `architecture` that is written.

    Tensors of the encoder begin with "bert." if there is a head.
    """
    model_type, family = config.model_type, FAMILIES[config.model_type]
    if family.turns_neighbours:
        has_head = any(name.startswith(_BERT_PREFIX) for name in tensors)
        table = position_table(config.max_position_embeddings, config.head_size)
        table = {_BERT_PREFIX * has_head + name: values for name, values in table.items()}
        tensors = {**tensors, **table}
    has_pooler = family.has_pooler or _POOLER in _head_rules(model_type, architecture).values()
    translate = _translation(model_type, reads=False, architecture=architecture)
    back = _translation(model_type, reads=True, architecture=architecture)
    named, parts = {}, {}
    for name, values in tensors.items():
        ours = name.removeprefix(_BERT_PREFIX)
        if family.turns_neighbours:
            values = _in_order(pairs_of_heads, config.head_size, _TURNED, ours, values)
        body, is_pooler = translate(ours), ours.startswith("pooler.")
        if is_pooler and not has_pooler:
            continue
        is_inside = name.startswith(_BERT_PREFIX) and body.startswith(_ENCODER_PARTS)
        is_inside &= family.has_pooler or not is_pooler
        theirs = (_PREFIXES[model_type] if is_inside else "") + body
        of_parts = back(body)
        if not _is_joint(of_parts):
            named[theirs] = values
            continue
        parts[ours] = values
        if parts.keys() >= {*of_parts}:
            values = np.concatenate([parts.pop(part) for part in of_parts])
            named[theirs] = _in_order(heads_together, config.head_size, _JOINT, theirs, values)
    return named


def _is_joint(names: str | tuple[str, ...]) -> bool:
    return not isinstance(names, str)


def _names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return names if _is_joint(names) else (names,)


def _head_rules(model_type: str, architecture: str) -> dict[str, str]:
    of_heads = _HEAD_RULES.get(model_type, {})
    return next((of_heads[end] for end in of_heads if architecture.endswith(end)), {})


@functools.cache
def _translation(
    model_type: str, reads: bool, architecture: str = "Model"
) -> Callable[[str], str | tuple[str, ...]]:
    """Returns a function from a family's names to BERT's, or back; of parts, to several."""
    rules, of_head = [], _head_rules(model_type, architecture)
    read_only = _READ if reads else {}
    for theirs, ours in {**_RULES.get(model_type, {}), **of_head, **read_only}.items():
        if not reads and not architecture.endswith(_ONLY.get(theirs, "")):
            continue
        for before, after in [(theirs, ours)] if reads else [(one, theirs) for one in _names(ours)]:
            pattern = re.escape(before).replace(r"\{\}", r"(\d+)")
            rules.append((re.compile(rf"{pattern}(?=\.|$)"), after))

    def translate(name):
        for pattern, after in rules:
            if pattern.match(name):
                new = [
                    pattern.sub(one.replace("{}", r"\1"), name, count=1) for one in _names(after)
                ]
                return tuple(new) if _is_joint(after) else new[0]
        return name

    return translate
