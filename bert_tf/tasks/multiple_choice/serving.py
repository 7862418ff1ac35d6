"""The signatures of `BertMultipleChoice`: the choice that goes with a prompt."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule


class MultipleChoiceModule(ServingModule):
    """Maps a prompt and several choices to the best choice and the probability of each.

    Examples with fewer choices than others are filled up with empty choices, or with padding. These
    are never chosen, and have probability 0 and a logit of minus infinity.
    """

    def of_text(self, prompt, choices):
        logits = self.model(self.model.tokenize(prompt, choices), training=False)  # [B, C]
        return _outputs(logits, choices != "")

    def of_tokens(self, tokens):
        logits = self.model(tokens, training=False)
        return _outputs(logits, tf.reduce_any(tokens["padding_mask"], axis=-1))


def _outputs(logits, exist):
    """Returns the outputs of logits `[B, C]`, of which those of choices that `exist` count."""
    logits = tf.where(exist, logits, -float("inf"))
    # A batch without rows may have no choices either, of which there is no maximum.
    choices = tf.pad(logits, [[0, 0], [0, 1]], constant_values=-float("inf"))
    return {
        "choice": tf.argmax(choices, axis=-1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
        "logits": logits,
    }
