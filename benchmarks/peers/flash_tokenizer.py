"""The peer FlashTokenizer: BERT's WordPiece in C++ with OpenMP, without offsets."""

import functools
import importlib.metadata

import flash_tokenizer

from . import base

_LONGEST = 1_000_000  # tokens; it has no setting for texts of any length


class FlashTokenizer(base.Peer):
    version = importlib.metadata.version("flash_tokenizer")

    def tokenizer(self, texts, vocabulary, variant):
        tokenizer = flash_tokenizer.BertTokenizerFlash(vocabulary, model_max_length=_LONGEST)
        options = dict.fromkeys(("return_token_type_ids", "return_attention_mask"), False)
        run = functools.partial(tokenizer, texts, "longest", _LONGEST, **options)
        # It has no setting for ids without [CLS] and [SEP] either.
        return base.tokenizer_task(run, lambda found: [row[1:-1] for row in found.input_ids])
