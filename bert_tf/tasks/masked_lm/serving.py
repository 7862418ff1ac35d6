"""The signatures of `BertMaskedLM`: the words that `[MASK]` hides."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule
from bert_tf.tasks.masked_lm.model import BertMaskedLM

TOP_K = 5  # pieces for each mask, as `fill_mask` gives by default


class MaskedLMModule(ServingModule):
    """Maps text with `[MASK]`s to the most probable pieces for them.

    Raises:
        UserError: If the tokenizer has no mask token.
    """

    def __init__(self, model: BertMaskedLM):
        super().__init__(model)
        model.preprocessor.require_mask_token()
        self._tokenizer = model.tokenizer.keeping_special_tokens

    def of_text(self, text):
        tokens = self._tokenizer(text, max_length=self.max_length)
        masks = tf.where(tokens["token_ids"] == self._tokenizer.mask_token_id)
        rows = tf.size(text, tf.int64)
        places = tf.RaggedTensor.from_value_rowids(masks[:, 1], masks[:, 0], rows)
        counts = tf.cast(places.row_lengths(), tf.int32)
        positions = places.to_tensor(0)  # [B, P]
        # One place at least, or there would be nothing to compute.
        positions = tf.pad(positions, [[0, 0], [0, tf.cast(tf.shape(positions)[1] == 0, tf.int32)]])
        logits = self.model({**tokens, "masked_positions": positions}, training=False)  # [B, P, V]
        probability, best = tf.math.top_k(tf.nn.softmax(logits), TOP_K)  # [B, P, K]
        exists = tf.sequence_mask(counts, tf.shape(positions)[1])[:, :, tf.newaxis]
        piece = tf.gather(tf.constant(self._tokenizer.vocabulary), best)
        return {
            "mask_count": counts,
            "piece": tf.where(exists, piece, ""),
            "probability": tf.where(exists, probability, 0.0),
        }
