"""The signatures of the models that write text: source in, target out."""

import dataclasses

from bert_tf.models.serving_module import ServingModule


class GeneratedTextModule(ServingModule):
    """Maps sources to what `TextGenerator.generate` writes, with the model's `generation_config`.

    It writes one target for each source. Sampling draws with the seed of the configuration, by the
    place of the source in the request.

    Args:
        model: The model, a `TextGenerator`.
    """

    def __init__(self, model):
        super().__init__(model)
        self._config = dataclasses.replace(model.generation_options(), num_return_sequences=1)

    def of_tokens(self, tokens):
        return {"token_ids": self.model.generated_tokens(tokens, self._config).token_ids}

    def of_text(self, text):
        tokens = self.model.tokenizer(text, max_length=self.max_length)
        return {"generated_text": self.model.written(self.of_tokens(tokens)["token_ids"])}
