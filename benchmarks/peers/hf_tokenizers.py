"""The peer Hugging Face `tokenizers`: its BERT WordPiece pipeline on a batch."""

import functools

import tokenizers

from . import base


class HuggingFaceTokenizers(base.Peer):
    version = tokenizers.__version__

    def tokenizer(self, texts, vocabulary, variant):
        tokenizer = tokenizers.BertWordPieceTokenizer(vocabulary, lowercase=True)
        run = functools.partial(tokenizer.encode_batch, texts, add_special_tokens=False)
        return base.tokenizer_task(run, lambda found: [row.ids for row in found])
