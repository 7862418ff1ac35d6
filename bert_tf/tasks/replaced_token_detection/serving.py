"""The signatures of `BertReplacedTokenDetector`: pieces, and whether they have replaced others."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.replaced_token_detection.preprocessor import scored_pieces


class ReplacedTokenDetectionModule(ServingModule):
    """Maps a text to what `detect` returns."""

    def of_text(self, text):
        tokenizer = self.model.tokenizer
        logits = self.model(self.model.tokenize(text), training=False)  # [B, T]
        found = tokenizer.tokenize_with_offsets(text, trim_offsets=True)
        fields = scored_pieces(tokenizer, self.model.max_sequence_length, found, logits)
        starts, ends, pieces, scores = fields
        return {
            "piece_count": tf.cast(pieces.row_lengths(), tf.int32),
            "piece": pieces.to_tensor(),
            "piece_start": tf.cast(starts, tf.int32).to_tensor(),
            "piece_end": tf.cast(ends, tf.int32).to_tensor(),
            "probability": scores.to_tensor(),
        }
