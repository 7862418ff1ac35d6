"""The signatures of `BertPrefixLM`."""

from bert_tf.tasks.shared.generated_text_module import GeneratedTextModule


class PrefixLMModule(GeneratedTextModule):
    """Maps sources to the targets that the model writes."""
