"""The signatures of `BertLateInteractionEncoder`: scores of pairs, and vectors of single texts."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule


class LateInteractionModule(ServingModule):
    """Maps a query and a document to a score, and queries or documents to vectors of tokens."""

    def of_text(self, query, document):
        outputs = self.of_tokens(self.model.tokenize(query, document))  # [B, 1]
        return {"score": outputs["logits"][:, 0], **outputs}

    def queries(self, text):
        """Returns the vectors of queries."""
        return self._vectors(text, True)

    def documents(self, text):
        """Returns the vectors of documents."""
        return self._vectors(text, False)

    def _vectors(self, text, is_query):
        tokens = self.model.preprocessor.text_tokens(text, is_query)
        vectors, counts = self.model.token_vectors(tokens)  # [B, T, D], [B, T]
        kept = tf.ragged.boolean_mask(vectors, counts)  # [B, (tokens), D]
        return {
            "vector_count": tf.cast(kept.row_lengths(), tf.int32),
            "vectors": tf.ensure_shape(kept.to_tensor(), [None, None, self.model.dim]),
        }
