"""The signatures of `BertEncoderDecoder`."""

from bert_tf.tasks.shared.generated_text_module import GeneratedTextModule


class EncoderDecoderModule(GeneratedTextModule):
    """Sources to the targets that the model writes."""
