"""Writes a model as a Hugging Face directory."""

import json
import os

import numpy as np

from bert_tf.checkpoints.loading import OWN_KEY
from bert_tf.checkpoints.weight_names import (
    Weight,
    classifier_weights,
    embedding_and_encoder_weights,
    pooler_weights,
)
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FORMATS = ("huggingface",)


def save_model(model, directory: str | os.PathLike, format: str = "huggingface") -> None:
    """Writes a backbone or a task model. See `TaskModel.save_pretrained`.

    Raises:
        UserError: If `format` is unknown.
    """
    if format not in FORMATS:
        raise UserError(f"`format` must be one of {FORMATS}. Received: format={format!r}")
    from safetensors.numpy import save_file

    backbone = getattr(model, "backbone", model)
    is_classifier = model is not backbone
    weights = embedding_and_encoder_weights(backbone) + pooler_weights(backbone)
    # As `transformers` saves: BertModel without a prefix, BertFor… with it, heads without.
    prefix = "bert." if is_classifier else ""
    tensors = {}
    for weight in weights:
        tensors.update(_huggingface_tensors(weight, prefix))
    config = backbone.config.to_huggingface()
    config["architectures"] = ["BertModel"]
    if is_classifier:
        for weight in classifier_weights(model):
            tensors.update(_huggingface_tensors(weight, ""))
        config.update(_classifier_config(model))

    os.makedirs(directory, exist_ok=True)
    with atomic_path(os.path.join(directory, "model.safetensors")) as path:
        save_file(tensors, path, metadata={"format": "pt"})
    with atomic_path(os.path.join(directory, "config.json")) as path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2, sort_keys=True, ensure_ascii=False)
            file.write("\n")
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)


def _huggingface_tensors(weight: Weight, prefix: str) -> dict[str, np.ndarray]:
    values = weight.variable.numpy().astype(np.float32)
    parts = np.split(values, len(weight.huggingface), axis=-1)
    return {
        prefix + name: np.ascontiguousarray(part.T if weight.transposed_in_huggingface else part)
        for name, part in zip(weight.huggingface, parts)
    }


def _classifier_config(model) -> dict:
    labels = model.labels or [f"LABEL_{index}" for index in range(model.num_classes)]
    return {
        "architectures": ["BertForSequenceClassification"],
        "classifier_dropout": model.dropout,
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
        OWN_KEY: {"pooling": model.pooling, "max_length": model.max_length},
    }
