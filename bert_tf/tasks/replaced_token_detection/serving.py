"""The signatures of `BertReplacedTokenDetector`: pieces, and whether they have replaced others."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule


class ReplacedTokenDetectionModule(ServingModule):
    """A text to what `detect` returns."""

    outputs = {
        "piece_count": "How many pieces the text has after it is cut; what follows is padding.",
        "piece": "The pieces.",
        "piece_start": "The first character of each in the text, in code points.",
        "piece_end": "The one after its last.",
        "probability": "That it has replaced another one.",
    }
    token_outputs = {"logits": "Of each token: above 0 where it has replaced another one."}

    def of_text(self, text):
        tokenizer = self.model.tokenizer
        pieces = tokenizer.tokenize_with_offsets(text, True)
        ids, starts, ends = (
            part[:, : self.max_length - 2]
            for part in (pieces.ids, pieces.char_starts, pieces.char_ends)
        )
        scores = tf.sigmoid(self.model(self.model.tokenize(text), training=False))  # [B, T]
        mask = tf.sequence_mask(ids.row_lengths(), tf.shape(scores)[1] - 2)

        return {
            "piece_count": tf.cast(ids.row_lengths(), tf.int32),
            "piece": tf.gather(tf.constant(tokenizer.vocabulary), ids).to_tensor(""),
            "piece_start": tf.cast(starts, tf.int32).to_tensor(),
            "piece_end": tf.cast(ends, tf.int32).to_tensor(),
            "probability": tf.where(mask, scores[:, 1:-1], 0.0),
        }
