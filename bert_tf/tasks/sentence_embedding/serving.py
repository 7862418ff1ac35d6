"""The signatures of `BertSentenceEncoder`: vectors."""

import tensorflow as tf

from bert_tf.models.serving_module import ServingModule


class SentenceEmbeddingModule(ServingModule):
    """Maps text, after the default prompt if there is one, to its vector."""

    def of_tokens(self, tokens):
        return {"vector": self.model(tokens, training=False)}

    def of_text(self, text):
        prompt = self.model.prompts.get(self.model.default_prompt_name, "")
        return super().of_text(text=tf.strings.join([prompt, text]) if prompt else text)
