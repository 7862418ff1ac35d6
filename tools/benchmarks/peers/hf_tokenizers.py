"""The peer Hugging Face `tokenizers`: its BERT WordPiece pipeline on a batch."""

import numpy as np
import tokenizers

from .base import Peer, Task


class _TokenizerTask(Task):
    def __init__(self, tokenizer, texts):
        self._tokenizer = tokenizer
        self._texts = texts

    def run(self):
        return self._tokenizer.encode_batch(self._texts, add_special_tokens=False)

    def outputs(self):
        rows = [encoding.ids for encoding in self.run()]
        lengths = np.array([len(row) for row in rows])
        return {
            "ids": np.concatenate([np.asarray(row, np.int32) for row in rows]),
            "row_splits": np.concatenate([[0], np.cumsum(lengths)]),
        }


class HuggingFaceTokenizers(Peer):
    @property
    def version(self):
        return tokenizers.__version__

    def tokenizer(self, texts, vocabulary, variant):
        tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
        return _TokenizerTask(tokenizer, texts)
