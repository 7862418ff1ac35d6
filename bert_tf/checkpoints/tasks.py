"""Which model has which heads, and which class of Hugging Face it corresponds to.

A new model is one entry here.
"""

import dataclasses

from bert_tf.checkpoints.weight_names import (
    HEADS,
    Part,
    Weight,
    backbone_weights,
    head_weights,
    part_names,
    pooler_weights,
)


@dataclasses.dataclass(frozen=True)
class Task:
    """One of our models, seen from its checkpoints.

    Attributes:
        heads: Attribute of the model -> the head's name in the table of weight names.
        architectures: Hugging Face's classes with the same head; the first is the one written.
        extras: Heads that a model may have and Hugging Face's class has not, as `heads`.
        pooler: Whether it computes with BERT's pooler, the dense layer on the first token.
    """

    heads: dict[str, str]
    architectures: tuple[str, ...]
    extras: dict[str, str] = dataclasses.field(default_factory=dict)
    pooler: bool = True


# By the name of the model's class. The order is that in which a file's heads are recognised.
TASKS = {
    "BertPretrainer": Task(
        {"masked_lm_head": "masked_lm", "next_sentence": "next_sentence"}, ("BertForPreTraining",)
    ),
    "BertMaskedLM": Task({"masked_lm_head": "masked_lm"}, ("BertForMaskedLM",), pooler=False),
    "BertNextSentencePredictor": Task(
        {"next_sentence": "next_sentence"}, ("BertForNextSentencePrediction",)
    ),
    "BertQuestionAnswerer": Task(
        {"span_classifier": "question_answering"}, ("BertForQuestionAnswering",), pooler=False
    ),
    "BertTextClassifier": Task({"classifier": "classifier"}, ("BertForSequenceClassification",)),
    "BertTokenClassifier": Task(
        {"classifier": "token_classifier"},
        ("BertForTokenClassification",),
        {"crf": "crf"},
        pooler=False,
    ),
    "BertMultipleChoice": Task({"classifier": "classifier"}, ("BertForMultipleChoice",)),
    "BertSentenceEncoder": Task({}, ("BertModel",), pooler=False),
    "BertFeatureExtractor": Task({}, ("BertModel",), pooler=False),
}
BACKBONE = Task({}, ("BertModel",))
# Every architecture with a head of its own: a file that names one has that head and no other.
HEAD_ARCHITECTURES = {name for task in TASKS.values() if task.heads for name in task.architectures}


def task_of(model_class: type) -> Task:
    """The task of a model class or of a subclass; a class of the user's own has no known head."""
    for base in model_class.__mro__:
        if base.__name__ in TASKS and base.__module__.startswith("bert_tf."):
            return TASKS[base.__name__]
    return BACKBONE


def class_name_of(model) -> str:
    """The public class of a model, also of one of the user's subclasses."""
    for base in type(model).__mro__:
        if base.__name__ in (*TASKS, "BertBackbone"):
            return base.__name__
    return type(model).__name__


def task_heads(model) -> dict[str, list[Weight]]:
    """The weights of each of a model's heads, by the head's name in the table."""
    backbone = backbone_of(model)
    heads = {}
    task = task_of(type(model))
    for path, name in {**task.heads, **task.extras}.items():
        layer = getattr(model, path)
        if layer is not None:  # a pre-training model may have no next sentences, a tagger no CRF
            heads[name] = head_weights(name, layer, path, backbone.config)
    return heads


def architecture_of(model) -> str:
    """Hugging Face's class with the heads that the model has: a pre-training model may lack one."""
    task = task_of(type(model))
    present = set(task_heads(model)) - set(task.extras.values())
    if present != set(task.heads.values()):
        task = next(
            (task for task in TASKS.values() if set(task.heads.values()) == present), BACKBONE
        )
    return task.architectures[0]


def head_parts(name: str, variable: str, format: str) -> tuple[Part, ...]:
    """The names in a format of one variable of a head whose shapes are not known yet."""
    return tuple(
        Part(part_names(row, format, variable), (), ())
        for row in HEADS[name]
        if getattr(row, format, None) is not None
    )


def backbone_of(model):
    """The `BertBackbone` of a model, which may be the model itself."""
    return getattr(model, "backbone", model)


def uses_pooler(model) -> bool:
    """Whether what a model computes depends on its pooler."""
    if getattr(model, "next_sentence", True) is None:  # a pre-training model without that loss
        return False
    return task_of(type(model)).pooler and getattr(model, "pooling", "cls") == "cls"


def all_weights(model) -> list[Weight]:
    """Every weight of a model that a checkpoint holds."""
    backbone = backbone_of(model)
    weights = backbone_weights(backbone) + pooler_weights(backbone)
    for head in task_heads(model).values():
        weights += head
    return weights


def model_class(name: str) -> type | None:
    """The public model class of that name, or None if this version has none."""
    import bert_tf

    if name != "BertBackbone" and name not in TASKS:
        return None
    return getattr(bert_tf, name) if name in bert_tf.__all__ else None
