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
        (("--projector_word=film",), "--projector_dir must be set with --projector_word"),
        (("--projector_dir=absent", "--projector_word=film"), "pairs in"),
    ],
)
def test_wrong_flags_are_refused(start, flags, words):
    output = f"--output_file={start}/none.jsonl"
    result = run("extract_features", *flags_for(start, *flags, output))
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert not (start / "none.jsonl").exists()


def test_one_of_the_outputs_is_needed(start):
    result = run("extract_features", *flags_for(start), "--output_file=")
    assert result.returncode == 1 and "At least one of --output_file" in result.stderr


def test_writes_vectors_for_the_projector(start):
    (start / "single.txt").write_text("good film\nbad\na film film")
    (start / "labels.txt").write_text("good\nbad\nneither")
    output = start / "projector"
    arguments = (
        f"--input_file={start}/single.txt",
        f"--init_checkpoint={start}/checkpoint",
        f"--projector_dir={output}",
        "--projector_word=film",
        "--max_seq_length=12",
        f"--projector_labels={start}/labels.txt",
    )
    result = run("extract_features", *arguments)
    assert result.returncode == 0, result.stderr
    assert f"tensorboard --logdir={output}" in result.stdout
    config = (output / "projector_config.pbtxt").read_text()
    names = ["pieces", "texts", "word_embeddings", "word_layer_00", "word_layer_01"]
    assert [line for line in config.split("\n") if "tensor_name" in line] == [
        f'  tensor_name: "{name}"' for name in names
    ]
    shapes = {name: np.loadtxt(output / name / "tensors.tsv").shape for name in names}
    assert list(shapes.values()) == [(64, 32), (3, 32), (3, 32), (3, 32), (3, 32)]
    words = (output / "word_layer_00" / "metadata.tsv").read_text().splitlines()
    assert words[0] == "text\tword\tlabel" and words[3] == "a film film\tfilm\tneither"
    assert (output / "pieces" / "metadata.tsv").read_text().splitlines()[1] == "[PAD]\t0"
    result = run("extract_features", *arguments, f"--projector_labels={start}/input.txt")
    assert result.returncode == 1 and "must be a file of 3 lines" in result.stderr


def test_pairs_for_the_projector(start):
    flags = flags_for(start, f"--projector_dir={start}/pairs", "--output_file=")
    result = run("extract_features", *flags)
    assert result.returncode == 0, result.stderr
    lines = (start / "pairs" / "texts" / "metadata.tsv").read_text().splitlines()
    assert lines == ["good film", "(empty)", *LINES[2:]]
    backbone = BertBackbone.from_pretrained(start / "checkpoint")
    tokens = BertTokenizer.from_pretrained(start / "checkpoint")(["the bad"], ["good film."])
    expected = backbone(tokens)["sequence_output"][0].numpy().mean(axis=0)
    vectors = np.loadtxt(start / "pairs" / "texts" / "tensors.tsv")
    np.testing.assert_allclose(vectors[2], expected, atol=1e-5)
