"""The signatures of `BertPrefixLM`."""

from bert_tf.models.generated_text_module import GeneratedTextModule


class PrefixLMModule(GeneratedTextModule):
    """Sources to the targets that the model writes."""
