"""The signatures of `BertSentenceEncoder`: vectors."""

from bert_tf.models.serving_module import ServingModule


class SentenceEmbeddingModule(ServingModule):
    """Text to its vector."""

    outputs = {"vector": "The text's vector."}

    def of_tokens(self, tokens):
        return {"vector": self.model(tokens, training=False)}

    def details(self):
        return {"vector_size": self.model.vector_size, "normalized": self.model.normalize}
