"""The architectures that are opened, trained and written: BERT and its relatives."""
