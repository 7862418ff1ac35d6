"""A BERT-large loads within the memory of its model and 1.2 times its file."""

import subprocess
import sys

import pytest
import tensorflow as tf

from tests.checkpoints import foreign

LARGE = {
    **foreign.HF_CONFIG,
    "vocab_size": 30522,
    "hidden_size": 1024,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
}
# Opens the file in a process of its own; prints the model's bytes and by how much the resident
# memory peaked above what the imports and a tiny model took.
PROGRAM = """
import sys
from bert_tf import BertBackbone, BertConfig

def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))

BertBackbone(BertConfig(vocab_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=1))
before = peak()
model = BertBackbone.from_pretrained(sys.argv[1])
print("bytes", 4 * model.count_params(), peak() - before)
"""


def write_tf1(directory, tensors):
    """Without a session, whose graph could not hold so much; the writing op is the Saver's own."""
    values = foreign.tf1_tensors(tensors)
    directory.mkdir()
    tf.raw_ops.SaveV2(
        prefix=str(directory / "bert_model.ckpt"),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    sizes = {key: value for key, value in LARGE.items() if type(value) is int}
    sizes.pop("pad_token_id")
    foreign.write_google_config(directory, **sizes)


WRITERS = {
    "safetensors": lambda path, tensors: foreign.write_huggingface(path, tensors, **LARGE),
    "tf1": write_tf1,
}


@pytest.mark.full
@pytest.mark.parametrize("format", list(WRITERS))
def test_peak_of_loading_bert_large(format, tmp_path):
    WRITERS[format](tmp_path / "large", foreign.random_tensors(LARGE))
    size = sum(path.stat().st_size for path in (tmp_path / "large").iterdir())
    assert size > 1.3e9
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "large")],
        check=True,
        capture_output=True,
        text=True,
    )
    line = next(line for line in run.stdout.splitlines() if line.startswith("bytes"))
    model, peak = map(int, line.split()[1:])
    share = (peak - model) / size
    print(f"{format}: file {size / 1e6:.0f} MB, peak in addition to the model {share:.2f} of it")
    assert model > 1.3e9
    assert share <= 1.2
