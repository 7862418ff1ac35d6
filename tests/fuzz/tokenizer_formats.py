"""The formats of subword tokenizers, as `formats.py` has those of models."""

import base64
import json

from tests.fuzz import byte_mutants, tokenizer_mutants
from tests.fuzz.json_mutants import mutants as json_mutants
from tests.text.subwords import bpe_definition, gemma_definition, unigram_definition

_MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "hell"), ("Ã", "©")]
_PIECES = [("▁", -2.0), ("▁hell", -3.0), ("中", -4.0), ("é", -1.0)]


def _open(path):
    from bert_tf.text import load_tokenizer

    load_tokenizer(path)
    return {}


def _write_definition(directory, definition):
    from bert_tf.text import SubwordTokenizer

    SubwordTokenizer(definition).save_pretrained(directory)


def _write_bpe(directory):
    _write_definition(directory, bpe_definition(_MERGES))


def _write_fallback(directory):
    merges = [("h", "e"), ("l", "l"), ("▁", "he"), ("<0xC3>", "<0xA9>")]
    _write_definition(directory, gemma_definition(merges, "hel"))


def _write_bpe_files(directory):
    directory.mkdir(parents=True)
    vocab = bpe_definition(_MERGES)["model"]["vocab"]
    (directory / "vocab.json").write_text(json.dumps(vocab))
    (directory / "merges.txt").write_text("\n".join(map(" ".join, _MERGES)), "utf-8")
    (directory / "config.json").write_text('{"model_type": "roberta"}')


def _write_unigram(directory):
    encoded = base64.b64encode(tokenizer_mutants.CHARSMAP).decode()
    steps = [{"type": "Precompiled", "precompiled_charsmap": encoded}]
    normalizer = {"type": "Sequence", "normalizers": steps}
    _write_definition(directory, unigram_definition(_PIECES, normalizer=normalizer))


def _write_albert(directory):
    directory.mkdir(parents=True)
    (directory / "spiece.model").write_bytes(tokenizer_mutants.model())


def _write_fairseq(directory):
    directory.mkdir(parents=True)
    (directory / "sentencepiece.bpe.model").write_bytes(tokenizer_mutants.model())
    (directory / "config.json").write_text('{"model_type": "camembert"}')


_CONFIG = {"tokenizer_config.json": json_mutants}

# The arguments of `Format` by name.
PARTS = {
    "byte pairs": {
        "write": _write_bpe,
        "open": _open,
        "lies": {"tokenizer.json": json_mutants, **_CONFIG},
    },
    "byte fallback": {
        "write": _write_fallback,
        "open": _open,
        "lies": {"tokenizer.json": json_mutants, **_CONFIG},
    },
    "byte pairs of files": {
        "write": _write_bpe_files,
        "open": _open,
        "lies": {
            "vocab.json": json_mutants,
            "merges.txt": byte_mutants.mutants,
            "config.json": json_mutants,
        },
    },
    "unigram": {
        "write": _write_unigram,
        "open": _open,
        "lies": {"tokenizer.json": tokenizer_mutants.definition_mutants, **_CONFIG},
        "many": 4000,
    },
    "sentencepiece": {
        "write": _write_albert,
        "open": _open,
        "lies": {"spiece.model": tokenizer_mutants.model_mutants},
        "many": 4000,
    },
    "sentencepiece of fairseq": {
        "write": _write_fairseq,
        "open": _open,
        "lies": {
            "sentencepiece.bpe.model": tokenizer_mutants.model_mutants,
            "config.json": json_mutants,
        },
        "many": 4000,
    },
}
