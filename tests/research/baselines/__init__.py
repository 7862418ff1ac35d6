"""The encoders that BERT is compared with."""
