"""The signatures of `BertLateInteractionEncoder`: scores of pairs, and vectors of single texts."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule

QUERIES, DOCUMENTS = "queries", "documents"


class LateInteractionModule(ServingModule):
    """Maps a query and a document to a score, and queries or documents to vectors of tokens."""

    texts = {"query": "The query, UTF-8.", "document": "The document, UTF-8."}
    tokens_shape = (None, None, None)
    outputs = {
        "score": "How well the document fits the query.",
        "logits": "The same, as the model computes it.",
    }
    token_outputs = {"logits": "How well each document of a row fits the query, its first text."}
    vector_outputs = {
        "vector_count": "How many vectors the text has; what follows is padding.",
        "vectors": "A vector for each token that counts.",
    }

    def of_text(self, query, document):
        outputs = self.of_tokens(self.model.tokenize(query, document))  # [B, 1]
        return {"score": outputs["logits"][:, 0], **outputs}

    def signatures(self):
        text = {"text": tf.TensorSpec([None], tf.string)}
        return {
            **super().signatures(),
            QUERIES: self.traced(lambda text: self._vectors(text, True), text),
            DOCUMENTS: self.traced(lambda text: self._vectors(text, False), text),
        }

    def _vectors(self, text, is_query):
        tokens = self.model.preprocessor.text_tokens(text, is_query)
        vectors, counts = self.model.token_vectors(tokens)  # [B, T, D], [B, T]
        kept = tf.ragged.boolean_mask(vectors, counts)  # [B, (tokens), D]
        return {
            "vector_count": tf.cast(kept.row_lengths(), tf.int32),
            "vectors": tf.ensure_shape(kept.to_tensor(), [None, None, self.model.dim]),
        }

    def meanings(self, signature):
        if signature in (QUERIES, DOCUMENTS):
            return {"text": "The text, UTF-8."}, dict(self.vector_outputs)
        return super().meanings(signature)

    def limits(self, signature):
        return {} if signature in (QUERIES, DOCUMENTS) else super().limits(signature)

    def details(self):
        return {"vector_size": self.model.dim}
