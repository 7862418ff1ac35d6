"""The signatures of `BertTextClassifier`.

Glossary: `B` texts, `C` classes, `L` candidate labels of a text.
"""

import dataclasses

import tensorflow as tf

from bert_tf.base.assertions import assert_that
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.text_classification.preprocessor import POSITIVE_CLASS
from bert_tf.tasks.text_classification.zero_shot import (
    LABEL_MARK,
    inference_classes,
    is_of_inference,
)

_ZERO_SHOT = {
    "zero_shot": (
        {
            "text": "The text, UTF-8.",
            "candidate_labels": "Labels of which some fit the text.",
            "hypothesis_template": "A sentence with {} for a label, such as 'It is {}.'.",
        },
        {
            "probabilities": "One per label, if one of them fits: their sum is 1.",
            "probabilities_alone": "One per label, each decided by itself.",
        },
    )
}


class TextClassificationModule(ServingModule):
    """Maps text, or a pair of texts, to a label, to the probabilities of several, or to numbers.

    Args:
        model: The `BertTextClassifier`.
        pairs: Whether it was trained on pairs of texts. If the pairs were those of natural language
            inference, there is a signature `zero_shot` too.
    """

    def __init__(self, model, pairs=False):
        super().__init__(model, pairs)
        if pairs and is_of_inference(model.preprocessor):
            lists = ("candidate_labels",)
            self.declared = dataclasses.replace(self.declared, further=_ZERO_SHOT, lists=lists)

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)  # [B, C]
        if self.model.problem_type == REGRESSION:
            return {"score": tf.identity(logits), "logits": logits}
        labels = tf.constant(self.model.preprocessor.names)
        if self.model.problem_type == MULTI_LABEL:
            names = tf.broadcast_to(labels, tf.shape(logits))  # [C] -> [B, C]
            return {"labels": names, "probabilities": tf.sigmoid(logits), "logits": logits}
        probabilities, threshold = tf.nn.softmax(logits), self.model.threshold
        if threshold is None:
            ids = tf.argmax(logits, axis=-1)
        else:
            ids = tf.cast(probabilities[:, POSITIVE_CLASS] >= threshold, tf.int64)
        return {"label": tf.gather(labels, ids), "probabilities": probabilities, "logits": logits}

    def zero_shot(self, text, candidate_labels, hypothesis_template):
        """Returns the outputs of the signature for texts and templates `[B]` and labels `[B, L]`.

        Rows with fewer labels are filled up with empty ones, whose probability is 0.
        """
        parts = tf.strings.split(hypothesis_template, LABEL_MARK)
        is_right = tf.reduce_all(parts.row_lengths() == 2)
        message = ["`hypothesis_template` must have one {} for the label."]
        with tf.control_dependencies(assert_that(is_right, message)):
            parts = parts.to_tensor("", shape=[None, 2])
        hypotheses = parts[:, :1] + candidate_labels + parts[:, 1:]  # [B, L]
        texts = tf.broadcast_to(text[:, tf.newaxis], tf.shape(hypotheses))
        pairs = (tf.reshape(strings, [-1]) for strings in (texts, hypotheses))
        logits = self.of_windows(self.model.tokenize(*pairs))  # [B * L, C]
        shape = [*tf.unstack(tf.shape(hypotheses)), logits.shape[1]]
        entailment, wrong = inference_classes(self.model.preprocessor)
        logits = tf.gather(tf.reshape(logits, shape), [entailment, wrong], axis=2)
        exist = candidate_labels != ""
        alone = tf.where(exist, tf.nn.softmax(logits)[..., 0], 0.0)
        of_all = tf.nn.softmax(tf.where(exist, logits[..., 0], -float("inf")))
        return {"probabilities": tf.where(exist, of_all, 0.0), "probabilities_alone": alone}
