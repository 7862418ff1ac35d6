"""Creates the random weights that all peers of a run use."""

import json
import os

import numpy as np

from .peers.base import HEADS

# New weights have zero biases and unit scales, so errors with them would not show without noise.
_NOISE = 0.02

CONFIGS = {
    "base": dict(),  # BertConfig's own defaults
    "large": dict(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    ),
    "small": dict(
        hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    ),
    "tiny": dict(
        vocab_size=99,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=128,
    ),
}


def make(worker, directory: str, config: dict) -> None:
    """Writes a Hugging Face directory and a file with the heads, by the worker of bert_tf."""
    from safetensors.numpy import save_file

    worker.make("weights", config=config, directory=directory)
    noise = _noise()
    _add_noise(directory, noise)
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    shapes = ([hidden, hidden], [hidden], [hidden], [hidden], [vocabulary], [2, hidden], [2])
    heads = {name: noise(shape) for name, shape in zip(HEADS, shapes, strict=True)}
    heads["cls.predictions.transform.LayerNorm.weight"] += 1
    save_file(heads, os.path.join(directory, "pretraining_heads.safetensors"))
    # CTranslate2's converter requires a tokenizer, but does not use it.
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = special + [f"piece{index}" for index in range(len(special), vocabulary)]
    with open(os.path.join(directory, "vocab.txt"), "w", encoding="utf-8") as file:
        file.writelines(f"{piece}\n" for piece in pieces)
    with open(os.path.join(directory, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "BertTokenizer"}, file)


def make_generator(worker, directory: str, config: dict) -> None:
    """Writes a Hugging Face directory of an encoder and a decoder, by bert_tf's worker."""
    worker.make("generator_weights", config=config, directory=directory)
    _add_noise(directory, _noise())


def _noise():
    """Returns a function of a shape to float32 noise, the same in every run."""
    generator = np.random.default_rng(1)
    return lambda shape: (_NOISE * generator.standard_normal(shape)).astype(np.float32)


def _add_noise(directory, noise):
    """Adds noise to all biases and scales of a checkpoint."""
    from safetensors.numpy import load_file, save_file

    path = os.path.join(directory, "model.safetensors")
    tensors = load_file(path)
    for name in sorted(tensors):
        if tensors[name].ndim == 1:
            tensors[name] = tensors[name] + noise(tensors[name].shape)
    save_file(tensors, path, metadata={"format": "pt"})


def parameters(directory: str) -> int:
    """Returns the number of parameters of the encoder and the heads."""
    from safetensors.numpy import load_file

    names = ("model.safetensors", "pretraining_heads.safetensors")
    tensors = [load_file(os.path.join(directory, name)) for name in names]
    return sum(value.size for file in tensors for value in file.values())
