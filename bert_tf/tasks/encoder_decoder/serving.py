"""The signatures of `BertEncoderDecoder`."""

from bert_tf.models.generated_text_module import GeneratedTextModule


class EncoderDecoderModule(GeneratedTextModule):
    """Sources to the targets that the model writes."""
