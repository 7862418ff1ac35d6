"""The signatures of `BertEncoderDecoder`."""

from bert_tf.tasks.shared.generated_text_module import GeneratedTextModule


class EncoderDecoderModule(GeneratedTextModule):
    """Maps sources to the targets that the model writes."""
