"""The peer Hugging Face `tokenizers`: its BERT WordPiece pipeline on a batch."""

import functools

import numpy as np
import tokenizers

from .base import Peer, Task


class HuggingFaceTokenizers(Peer):
    version = tokenizers.__version__

    def tokenizer(self, texts, vocabulary, variant):
        tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
        run = functools.partial(tokenizer.encode_batch, texts, add_special_tokens=False)

        def outputs():
            rows = [encoding.ids for encoding in run()]
            return {
                "ids": np.concatenate([np.asarray(row, np.int32) for row in rows]),
                "row_splits": np.cumsum([0, *map(len, rows)]),
            }

        return Task(run, outputs)
