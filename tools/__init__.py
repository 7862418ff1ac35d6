"""The programs of bert_tf: `bert-tf NAME`, or `python tools/NAME.py` in a checkout."""
