"""Mutated files: an error, or the right numbers; never a crash, a hang or silent garbage.

The mutants run in a process of their own, which must live to the end. Bare safetensors and HDF5
files have no checksums, so for those a change in the numbers themselves cannot be seen by anybody;
there the mutations stay in the structure (safetensors), or finite numbers of the right shapes are
all that is asked (HDF5).
"""

import json
import os
import subprocess
import sys

import numpy as np

from tests.checkpoints import foreign
from tests.conftest import REPOSITORY

NUM_MUTANTS = 3_000 if os.environ.get("BERT_TF_FULL") == "1" else 150
CONFIG = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 16,
}
# Format -> the files that are mutated, and whether a change of the numbers is noticed.
TARGETS = {
    "own": (["bert_tf.safetensors", "bert_tf.json"], True),
    "huggingface": (["model.safetensors", "config.json"], True),
    "foreign safetensors": (["model.safetensors"], "header"),
    "torch": (["pytorch_model.bin"], True),
    "tf1": (["bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"], True),
    "keras": (["model.keras"], True),
    "tf h5": (["tf_model.h5"], False),
}
SECONDS_PER_MUTANT = 3


def prepare(format, directory):
    from bert_tf import BertBackbone

    tensors = foreign.random_tensors({**foreign.HF_CONFIG, **CONFIG})
    plain = directory / "plain"
    foreign.write_huggingface(plain, tensors, **CONFIG)
    target = directory / "target"
    backbone = BertBackbone.from_pretrained(plain)
    if format == "own":
        backbone.save_pretrained(target, format="bert_tf")
    elif format == "huggingface":
        backbone.save_pretrained(target)
    elif format == "foreign safetensors":
        foreign.write_huggingface(target, tensors, **CONFIG)
    elif format == "torch":
        foreign.write_config(target, **CONFIG)
        foreign.write_torch(target / "pytorch_model.bin", tensors)
    elif format == "tf1":
        backbone.save_pretrained(target, format="tf1")
    elif format == "keras":
        target.mkdir()
        backbone.save(target / "model.keras")
    elif format == "tf h5":
        foreign.write_tf_h5(target, tensors, **CONFIG)
    return target


def mutate(content, rng, limit):
    """One of several kinds of damage to the first `limit` bytes."""
    content = bytearray(content)
    place = int(rng.integers(limit))
    kind = rng.integers(6)
    if kind == 0:
        content[place] ^= 1 << int(rng.integers(8))
    elif kind == 1:
        content[place] = int(rng.integers(256))
    elif kind == 2:
        del content[place : place + (1 if limit < len(content) else len(content))]
    elif kind == 3:
        content[place : place + 8] = bytes(rng.integers(0, 256, 8).astype(np.uint8))
    elif kind == 4:
        content[place:place] = bytes(rng.integers(0, 256, int(rng.integers(1, 9))).astype(np.uint8))
    else:
        other = int(rng.integers(limit))
        content[place : place + 8] = content[other : other + 8]
    return bytes(content)


def run_mutants(format, directory, seed, count):
    """In the child process: opens mutant after mutant; returns how many opened and how many not."""
    import logging

    from bert_tf import BertBackbone
    from bert_tf.checkpoints.tasks import all_weights
    from bert_tf.errors import UserError

    logging.getLogger("bert_tf").setLevel(logging.CRITICAL)
    files, noticed = TARGETS[format]
    target = prepare(format, directory)
    path = target / "model.keras" if format == "keras" else target

    def values():
        backbone = BertBackbone.from_pretrained(path)
        return {w.name: w.variable.numpy() for w in all_weights(backbone)}, backbone.config

    original, config = values()
    rng = np.random.default_rng(seed)
    opened = refused = 0
    for index in range(count):
        name = files[index % len(files)]
        content = (target / name).read_bytes()
        limit = len(content)
        if noticed == "header":
            limit = 8 + int.from_bytes(content[:8], "little")
        mutant = mutate(content, rng, limit)
        print(format, index, name, flush=True)
        (target / name).write_bytes(mutant)
        try:
            found, found_config = values()
            opened += 1
            for weight, expected in original.items():
                if weight not in found and name.endswith(".json"):
                    continue  # a damaged configuration may ask for a smaller network
                if noticed:
                    np.testing.assert_array_equal(found[weight], expected, err_msg=weight)
                else:
                    assert found[weight].shape == expected.shape
                    assert np.isfinite(found[weight]).all()
        except UserError:
            refused += 1
        finally:
            (target / name).write_bytes(content)
    return {"opened": opened, "refused": refused}


def test_mutants(tmp_path):
    count = -(-NUM_MUTANTS // len(TARGETS))
    program = (
        "import json, pathlib, sys\n"
        "from tests.checkpoints.test_fuzz import TARGETS, run_mutants\n"
        "directory, count = pathlib.Path(sys.argv[1]), int(sys.argv[2])\n"
        "counts = {name: run_mutants(name, directory / name, 0, count) for name in TARGETS}\n"
        "print(json.dumps(counts))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), str(count)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60 + SECONDS_PER_MUTANT * NUM_MUTANTS,
    )
    assert result.returncode == 0, result.stdout[-500:] + result.stderr[-3000:]
    print(result.stdout.splitlines()[-1])
    for format, counts in json.loads(result.stdout.splitlines()[-1]).items():
        assert sum(counts.values()) == count
        assert counts["refused"] > count // 4, format
