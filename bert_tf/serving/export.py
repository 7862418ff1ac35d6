"""Writes a classifier as a SavedModel that takes raw strings."""

import os

import tensorflow as tf

from bert_tf import ops
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.errors import UserError
from bert_tf.files import atomic_path
from bert_tf.models.text_classifier import BertTextClassifier


def export(
    model: BertTextClassifier,
    directory: str | os.PathLike,
    version: int = 1,
    portable: bool = True,
) -> str:
    """Writes `directory/version`, the layout that TF Serving watches.

    Signatures:
        serving_default: `text`, string `[B]` -> `label` string `[B]`, `probabilities` float32
            `[B, C]`, `logits` float32 `[B, C]`.
            With several labels `labels` string `[B, C]`, the names beside the probabilities,
            instead of `label`; for regression `score` float32 `[B, C]` and `logits` alone.
        tokens: `token_ids` int32, `segment_ids` int32 and `padding_mask` bool, all `[B, T]` -> the
            same outputs.

    Args:
        model: A `BertTextClassifier` with its tokenizer.
        directory: The model's directory.
        version: Name of the subdirectory; an older one of that name is replaced as a whole.
        portable: True writes only stock TensorFlow and tensorflow-text operations, which any
            program with those libraries loads. False keeps the fused operations, which need
            `import bert_tf` (or its shared object) in the loading program.

    Returns:
        The path that was written.

    Raises:
        UserError: If the model has no tokenizer, or `portable=False` without the built operations.
    """
    if model.tokenizer is None:
        raise UserError("A model with a tokenizer was expected. Received: tokenizer=None")
    path = os.path.join(os.fspath(directory), str(version))
    backend = "reference" if portable else "native"
    with ops.backend(backend), atomic_path(path) as new:
        module = _ServingModule(model)
        tf.saved_model.save(
            module,
            new,
            signatures={
                "serving_default": module.serve_text.get_concrete_function(),
                "tokens": module.serve_tokens.get_concrete_function(),
            },
        )
    return path


class _ServingModule(tf.Module):
    """Tokenizer, model and the labels' names in one graph."""

    def __init__(self, model: BertTextClassifier):
        super().__init__()
        self.model = model
        self.tokenizer = model.tokenizer
        labels = model.labels or [f"LABEL_{index}" for index in range(model.num_classes)]
        self.labels = tf.constant(labels)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def serve_text(self, text):
        return self._outputs(self.model.tokenize(text))

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name="token_ids"),
            tf.TensorSpec([None, None], tf.int32, name="segment_ids"),
            tf.TensorSpec([None, None], tf.bool, name="padding_mask"),
        ]
    )
    def serve_tokens(self, token_ids, segment_ids, padding_mask):
        return self._outputs(
            {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}
        )

    def _outputs(self, tokens):
        logits = self.model(tokens, training=False)  # [B, C]
        if self.model.problem_type == REGRESSION:
            return {"score": tf.identity(logits), "logits": logits}
        if self.model.problem_type == MULTI_LABEL:
            names = tf.broadcast_to(self.labels, tf.shape(logits))  # [C] -> [B, C]
            return {"labels": names, "probabilities": tf.sigmoid(logits), "logits": logits}
        return {
            "label": tf.gather(self.labels, tf.argmax(logits, axis=-1)),
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }
