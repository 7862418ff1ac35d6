"""The signatures of `BertReplacedTokenDetector`: pieces, and whether they have replaced others."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule


class ReplacedTokenDetectionModule(ServingModule):
    """Maps a text to what `detect` returns."""

    def of_text(self, text):
        logits = self.model(self.model.tokenize(text), training=False)  # [B, T]
        starts, ends, pieces, scores = self.model.preprocessor.scored_pieces(text, logits)
        return {
            "piece_count": tf.cast(pieces.row_lengths(), tf.int32),
            "piece": pieces.to_tensor(),
            "piece_start": tf.cast(starts, tf.int32).to_tensor(),
            "piece_end": tf.cast(ends, tf.int32).to_tensor(),
            "probability": scores.to_tensor(),
        }
