"""The signatures of `BertSparseEncoder`: the terms of a text, or its whole vector."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule

TERMS = 512  # the most terms of a text if the model has no `max_active_dims`


class SparseEmbeddingModule(ServingModule):
    """Maps text, after the default prompt if any, to its terms, and token ids to the vector."""

    def of_tokens(self, tokens):
        return {"vector": self.model(tokens, training=False)}  # [B, V]

    def of_text(self, text):
        prompt = self.model.prompts.get(self.model.default_prompt_name, "")
        text = tf.strings.join([prompt, text]) if prompt else text
        vectors = self.model(self.model.tokenize(text), training=False)  # [B, V]
        size = min(self.model.max_active_dims or TERMS, self.model.vector_size)
        weights, ids = tf.math.top_k(vectors, size)  # [B, size]
        counts = tf.math.count_nonzero(weights, axis=1, dtype=tf.int32)  # [B]
        longest = tf.reduce_max(tf.concat([counts, [0]], axis=0))
        weights, ids = weights[:, :longest], ids[:, :longest]
        exists = weights > 0.0
        return {
            "term_count": counts,
            "term": tf.where(exists, tf.gather(tf.constant(self.model.pieces()), ids), ""),
            "term_id": tf.where(exists, ids, 0),
            "term_weight": weights,
        }
