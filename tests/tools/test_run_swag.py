"""tools/run_swag.py, run as a user runs it, on a tiny model and planted data."""

import dataclasses

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTokenizer
from tests.tools.running import results_in, run

HEADER = "video-id,sent1,sent2,ending0,ending1,ending2,ending3,label"
WORDS = "abcdefgh"


def rows(count, seed):
    """The right ending says the word of the prompt again."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        endings = rng.permutation(list(WORDS))[:4]
        label = rng.integers(4)
        yield f"{number},the {endings[label]}.,the,{','.join(endings)},{label}"


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_config, is_full):
    root = tmp_path_factory.mktemp("swag")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", ".", *WORDS]
    keras.utils.set_random_seed(0)
    config = dataclasses.replace(
        tiny_config,
        vocab_size=len(words),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    BertBackbone(config).save_pretrained(root / "checkpoint")
    BertTokenizer(words, lowercase=False).save_pretrained(root / "checkpoint")
    (root / "data").mkdir()
    counts = {"train": 1600 if is_full else 64, "val": 100, "test": 20}
    for seed, (name, count) in enumerate(counts.items()):
        lines = [HEADER, *rows(count, seed)]
        (root / "data" / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return root


def test_trains_evaluates_and_predicts(start, is_full):
    """In the full suite it trains long enough to learn."""
    result = run(
        "run_swag",
        f"--data_dir={start}/data",
        f"--output_dir={start}/out",
        f"--init_checkpoint={start}/checkpoint",
        "--max_seq_length=16",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--learning_rate=3e-3",
        f"--num_train_epochs={4.5 if is_full else 1.5}",
        "--train_batch_size=32",
        "--label_smoothing=0.05",
        "--gradient_accumulation_steps=2",
        "--layer_decay=0.95",
    )
    assert result.returncode == 0, result.stderr
    accuracy = float(results_in(start / "out" / "eval_results.txt")["eval_accuracy"])
    assert accuracy > 0.95 or not is_full
    predictions = np.loadtxt(start / "out" / "test_results.tsv")
    assert predictions.shape == (20, 5)
    np.testing.assert_allclose(predictions[:, 1:].sum(axis=1), 1, atol=1e-6)
    gold = [int(line[-1]) for line in (start / "data" / "test.csv").read_text().splitlines()[1:]]
    assert (predictions[:, 0] == gold).mean() > 0.9 or not is_full


def test_bad_files_are_found_before_the_model_is_opened(start, tmp_path):
    (tmp_path / "train.csv").write_text(f"{HEADER}\n0,a,b,c,d,e,f,9\n")
    result = run(
        "run_swag",
        f"--data_dir={tmp_path}",
        f"--output_dir={tmp_path}/out",
        "--init_checkpoint=absent",
        "--do_train",
    )
    assert result.returncode == 1
    assert "train.csv, line 2 must have a label from 0 to 3" in result.stderr
    assert "Traceback" not in result.stderr
