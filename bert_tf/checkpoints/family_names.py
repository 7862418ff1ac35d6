"""What the other networks of `network_families` call the layers that BERT has, in Hugging Face.

`by_bert_names` reads a file of one of them; `names_of` gives their names back when a model is
written. Names are those of BERT's without the prefix of the encoder.

Sources: `transformers`, modeling_*.py.
"""

import functools
import re
from collections.abc import Callable, Mapping

import numpy as np

from bert_tf.base.tensor_source import RenamedSource, TensorSource
from bert_tf.families.network_families import BERT, BERT_GENERATION, FAMILIES

# The endings of the names of a family's classes -> of BERT's with the same heads.
_SEQUENCE, _CHOICE = "ForSequenceClassification", "ForMultipleChoice"
_TAGS, _ANSWERS = "ForTokenClassification", "ForQuestionAnswering"
_MOST = {name: name for name in ("Model", "ForMaskedLM", _SEQUENCE, _TAGS, _ANSWERS, _CHOICE)}
_CLASSES = {
    BERT_GENERATION: {"Encoder": "Model"},
    "albert": {**_MOST, "ForPreTraining": "ForPreTraining"},
    "electra": {**_MOST, "ForPreTraining": "ForReplacedTokenDetection"},
}
_ONLY = {  # what only a class with this ending writes
    "classifier.dense": _SEQUENCE,
    "classifier.out_proj": _SEQUENCE,
    "sequence_summary.summary": _CHOICE,
}
_CLASSIFIER = {"classifier.dense": "pooler.dense", "classifier.out_proj": "classifier"}
_BLOCK, _ALBERT_BLOCK = "encoder.layer.{}", "encoder.albert_layer_groups.{}.albert_layers.0"
_ROBERTA = {
    **_CLASSIFIER,
    "lm_head.dense": "cls.predictions.transform.dense",
    "lm_head.layer_norm": "cls.predictions.transform.LayerNorm",
    "lm_head": "cls.predictions",
}
# How names begin, of theirs -> ours; {} is the number of a block. The first that fits is applied.
_RULES = {
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
}
# Layers whose names begin with one of these have the prefix of the encoder.
_ENCODER_PARTS = ("embeddings", "encoder", "transformer", "pooler")
_BERT_PREFIX = "bert."
# What precedes the names of the encoder's layers in models with a head. All modules of XLM-R and
# CamemBERT are RoBERTa's.
_PREFIXES = {name: f"{name}." for name in FAMILIES} | {BERT_GENERATION: _BERT_PREFIX}
_PREFIXES |= dict.fromkeys(("xlm-roberta", "camembert"), "roberta.")


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


def by_bert_names(source: TensorSource, model_type: str) -> TensorSource:
    """Returns the tensors of a family's file by BERT's names."""
    prefix = _PREFIXES[model_type]
    translate = _translation(model_type, reads=True)
    ours = {name: translate(name.removeprefix(prefix)) for name in source.shapes}
    # Old files of classifiers also have an untrained pooler: what a rule has renamed is used,
    # and the other tensor keeps its own name.
    renamed_last = sorted(ours, key=lambda name: ours[name] != name.removeprefix(prefix))
    winners = {ours[name]: name for name in renamed_last}
    names = {ours[name] if winners[ours[name]] == name else name: name for name in source.shapes}
    return RenamedSource(source, names, in_file=_translation(model_type, reads=False))


def names_of(tensors: Mapping[str, np.ndarray], model_type: str, architecture: str) -> dict:
    """Returns tensors by a family's names.

    Args:
        tensors: Tensors by BERT's names; those of the encoder begin with "bert." if there is a
            head.
        model_type: The family.
        architecture: The family's class that is written.
    """
    translate = _translation(model_type, reads=False, architecture=architecture)
    named = {}
    for name, values in tensors.items():
        body = translate(name.removeprefix(_BERT_PREFIX))
        is_inside = name.startswith(_BERT_PREFIX) and body.startswith(_ENCODER_PARTS)
        named[(_PREFIXES[model_type] if is_inside else "") + body] = values
    return named


@functools.cache
def _translation(model_type: str, reads: bool, architecture: str = "Model") -> Callable[[str], str]:
    """Returns a function from a family's names to BERT's, or back."""
    rules = []
    for theirs, ours in _RULES.get(model_type, {}).items():
        before, after = (theirs, ours) if reads else (ours, theirs)
        if reads or architecture.endswith(_ONLY.get(theirs, "")):
            pattern = re.escape(before).replace(r"\{\}", r"(\d+)")
            rules.append((re.compile(rf"{pattern}(?=\.|$)"), after.replace("{}", r"\1")))

    def translate(name):
        for pattern, replacement in rules:
            if pattern.match(name):
                return pattern.sub(replacement, name, count=1)
        return name

    return translate
