"""What the other networks of `network_families` call the layers that BERT has, in Hugging Face.

A file of one of them is read through `FamilySource`, with BERT's names; `names_of` gives them back
when a model is written. Names are those of BERT's without the prefix of the encoder.

Sources: `transformers`, modeling_*.py.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.network_families import BERTS, FAMILIES

# The endings of the names of the classes that the families have, besides "Model".
_SEQUENCE, _CHOICE = "ForSequenceClassification", "ForMultipleChoice"
_ENDINGS = ("ForMaskedLM", _SEQUENCE, "ForTokenClassification", "ForQuestionAnswering", _CHOICE)
# And those that some have: ours.
_OTHER_CLASSES = {
    "albert": {"ForPreTraining": "ForPreTraining"},
    "electra": {"ForPreTraining": "ForReplacedTokenDetection"},
}
_BERT_PREFIX = "bert."


class _Rule(NamedTuple):
    theirs: str  # the beginning of a name; {} is the number of a block
    ours: str
    only: str = ""  # the ending of the class that writes this name


_CLASSIFIER = (
    _Rule("classifier.dense", "pooler.dense", _SEQUENCE),
    _Rule("classifier.out_proj", "classifier", _SEQUENCE),
)
_ROBERTA = (
    *_CLASSIFIER,
    _Rule("lm_head.dense", "cls.predictions.transform.dense"),
    _Rule("lm_head.layer_norm", "cls.predictions.transform.LayerNorm"),
    _Rule("lm_head", "cls.predictions"),
)
_MPNET = (
    *(
        _Rule(f"encoder.layer.{{}}.attention.{theirs}", f"encoder.layer.{{}}.attention.{ours}")
        for theirs, ours in (
            ("attn.q", "self.query"),
            ("attn.k", "self.key"),
            ("attn.v", "self.value"),
            ("attn.o", "output.dense"),
            ("LayerNorm", "output.LayerNorm"),
        )
    ),
    *_ROBERTA,
)
_ALBERT_BLOCK = "encoder.albert_layer_groups.{}.albert_layers.0."
# The first rule that fits is applied.
_RULES: dict[str, Sequence[_Rule]] = {
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "mpnet": _MPNET,
    "distilbert": (
        _Rule("pre_classifier", "pooler.dense"),
        *(
            _Rule(f"transformer.layer.{{}}.{theirs}", f"encoder.layer.{{}}.{ours}")
            for theirs, ours in (
                ("attention.q_lin", "attention.self.query"),
                ("attention.k_lin", "attention.self.key"),
                ("attention.v_lin", "attention.self.value"),
                ("attention.out_lin", "attention.output.dense"),
                ("sa_layer_norm", "attention.output.LayerNorm"),
                ("ffn.lin1", "intermediate.dense"),
                ("ffn.lin2", "output.dense"),
                ("output_layer_norm", "output.LayerNorm"),
            )
        ),
        _Rule("vocab_transform", "cls.predictions.transform.dense"),
        _Rule("vocab_layer_norm", "cls.predictions.transform.LayerNorm"),
        _Rule("vocab_projector.bias", "cls.predictions.bias"),
        _Rule("vocab_projector.weight", "cls.predictions.decoder.weight"),
    ),
    "electra": (
        *_CLASSIFIER,
        _Rule("sequence_summary.summary", "pooler.dense", _CHOICE),
        _Rule("generator_predictions.dense", "cls.predictions.transform.dense"),
        _Rule("generator_predictions.LayerNorm", "cls.predictions.transform.LayerNorm"),
        _Rule("generator_lm_head.bias", "cls.predictions.bias"),
        _Rule("generator_lm_head.weight", "cls.predictions.decoder.weight"),
    ),
    "albert": (
        _Rule("encoder.embedding_hidden_mapping_in", "embeddings_project"),
        *(
            _Rule(_ALBERT_BLOCK + theirs, f"encoder.layer.{{}}.{ours}")
            for theirs, ours in (
                ("attention.dense", "attention.output.dense"),
                ("attention.LayerNorm", "attention.output.LayerNorm"),
                ("attention", "attention.self"),
                ("ffn_output", "output.dense"),
                ("ffn", "intermediate.dense"),
                ("full_layer_layer_norm", "output.LayerNorm"),
            )
        ),
        _Rule("pooler", "pooler.dense"),
        _Rule("predictions.dense", "cls.predictions.transform.dense"),
        _Rule("predictions.LayerNorm", "cls.predictions.transform.LayerNorm"),
        _Rule("predictions", "cls.predictions"),
        _Rule("sop_classifier.classifier", "cls.seq_relationship"),
    ),
}
# Layers whose names begin with one of these have the prefix of the encoder.
_ENCODER_PARTS = ("embeddings", "encoder", "transformer", "pooler")


def _prefix(model_type):
    # All of XLM-R's and CamemBERT's modules are RoBERTa's.
    is_roberta = _RULES.get(model_type) is _ROBERTA
    return "roberta." if is_roberta else f"{model_type}."


def bert_class(name: str, model_type: str) -> str:
    """Returns BERT's class for one of a family, as `BertForMaskedLM` for `RobertaForMaskedLM`."""
    prefix = FAMILIES[model_type].class_prefix
    ending = name.removeprefix(prefix)
    if ending == name or not ending.startswith(("For", "Model")):
        return name
    return "Bert" + _OTHER_CLASSES.get(model_type, {}).get(ending, ending)


def family_class(name: str, model_type: str) -> str | None:
    """Returns a family's class for one of BERT's, or None if the family has none."""
    if model_type in BERTS:
        return name
    endings = {ending: ending for ending in ("Model", *_ENDINGS)}
    endings |= {ours: theirs for theirs, ours in _OTHER_CLASSES.get(model_type, {}).items()}
    ending = endings.get(name.removeprefix("Bert"))
    return None if ending is None else FAMILIES[model_type].class_prefix + ending


class FamilySource:
    """The tensors of a family's file by BERT's names. A `TensorSource`."""

    format = "huggingface"

    def __init__(self, source: TensorSource, model_type: str):
        self.path = source.path
        self._source, self._model_type = source, model_type
        prefix = _prefix(model_type)
        translate = _translation(model_type, reads=True)
        ours = {name: translate(name.removeprefix(prefix)) for name in source.shapes}
        # Old files of classifiers also have an untrained pooler: what a rule has renamed is used,
        # and the other tensor keeps its own name.
        renamed_last = sorted(ours, key=lambda name: ours[name] != name.removeprefix(prefix))
        winners = {ours[name]: name for name in renamed_last}
        self._names = {
            ours[name] if winners[ours[name]] == name else name: name for name in source.shapes
        }
        self.shapes = {ours: source.shapes[name] for ours, name in self._names.items()}
        ours_of = {name: ours for ours, name in self._names.items()}
        aliases = getattr(source, "aliases", {})
        self.aliases = {ours_of[name]: ours_of[other] for name, other in aliases.items()}

    def read(self, name: str) -> np.ndarray:
        return self._source.read(self._names[name])

    def name_in_file(self, name: str) -> str:
        """Returns what the file calls a tensor, or would if it held it, for error messages."""
        return self._names.get(name) or _translation(self._model_type, reads=False)(name)


def names_of(tensors: Mapping[str, np.ndarray], model_type: str, architecture: str) -> dict:
    """Returns tensors by a family's names.

    Args:
        tensors: Tensors by BERT's names; those of the encoder begin with "bert." if there is a
            head.
        model_type: The family.
        architecture: The family's class that is written.
    """
    if model_type in BERTS:
        return dict(tensors)
    translate = _translation(model_type, reads=False, architecture=architecture)
    named = {}
    for name, values in tensors.items():
        body = translate(name.removeprefix(_BERT_PREFIX))
        is_inside = name.startswith(_BERT_PREFIX) and body.startswith(_ENCODER_PARTS)
        named[(_prefix(model_type) if is_inside else "") + body] = values
    return named


@functools.cache
def _translation(model_type: str, reads: bool, architecture: str = "Model") -> Callable[[str], str]:
    """Returns a function from a family's names to BERT's, or back."""
    rules = []
    for theirs, ours, only in _RULES[model_type]:
        before, after = (theirs, ours) if reads else (ours, theirs)
        if reads or architecture.endswith(only):
            pattern = re.escape(before).replace(r"\{\}", r"(\d+)")
            rules.append((re.compile(rf"{pattern}(?=\.|$)"), after.replace("{}", r"\1")))

    def translate(name):
        for pattern, replacement in rules:
            if pattern.match(name):
                return pattern.sub(replacement, name, count=1)
        return name

    return translate
