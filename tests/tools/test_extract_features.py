"""tools/extract_features.py against the backbone itself, in the original's JSON."""

import json

import numpy as np
import pytest

from bert_tf import BertBackbone, BertTokenizer
from tests.tools.running import run

LINES = ["good film", "", "the bad ||| good film.", "a b c d e f g h i j k l m n o p q r s t"]


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_config, tiny_vocabulary):
    root = tmp_path_factory.mktemp("features")
    BertBackbone(tiny_config).save_pretrained(root / "checkpoint", format="tf1")
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(root / "checkpoint")
    (root / "input.txt").write_text("\n".join(LINES))
    return root


def flags_for(start, *more):
    return (
        f"--input_file={start}/input.txt",
        f"--output_file={start}/output.jsonl",
        f"--init_checkpoint={start}/checkpoint/bert_model.ckpt",
        "--max_seq_length=12",
        *more,
    )


def test_writes_the_states_of_every_token(start):
    files = start / "checkpoint"
    flags = flags_for(
        start,
        "--layers=-1,0",
        "--batch_size=3",
        f"--vocab_file={files}/vocab.txt",
        f"--bert_config_file={files}/bert_config.json",
    )
    result = run("extract_features", *flags)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in (start / "output.jsonl").read_text().splitlines()]
    assert [line["linex_index"] for line in lines] == [0, 1, 2, 3]
    backbone = BertBackbone.from_pretrained(files)
    tokenizer = BertTokenizer.from_pretrained(files)
    for text, line in zip(LINES, lines):
        firsts, _, seconds = text.partition(" ||| ")
        tokens = tokenizer([firsts], [seconds] if seconds else None, max_length=12)
        states = backbone(tokens, output_hidden_states=True)["hidden_states"]
        pieces = [tokenizer.vocabulary[token_id] for token_id in tokens["token_ids"][0]]
        assert [feature["token"] for feature in line["features"]] == pieces
        for place, feature in enumerate(line["features"]):
            assert [layer["index"] for layer in feature["layers"]] == [-1, 0]
            # Block 0 is the second hidden state: the first is the embeddings.
            for layer, expected in zip(feature["layers"], (states[2], states[1])):
                np.testing.assert_allclose(layer["values"], expected[0, place], atol=1e-5)
                assert all(round(value, 6) == value for value in layer["values"])
    assert list(lines[0]) == ["linex_index", "features"]


@pytest.mark.parametrize(
    "flags,words",
    [
        (("--layers=2",), "numbers from -2 to 1"),
        (("--layers=-1,x",), "whole numbers"),
        (("--input_file=absent.txt",), "absent.txt must be a data file"),
    ],
)
def test_wrong_flags_are_told(start, flags, words):
    output = f"--output_file={start}/none.jsonl"
    result = run("extract_features", *flags_for(start, *flags, output))
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert not (start / "none.jsonl").exists()
