"""tools/run_summarization.py, run as a user runs it, on a tiny model and planted data."""

import json

import keras
import numpy as np
import pytest

from bert_tf import BertBackbone, BertTokenizer
from tests.tools.running import results_in, run


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_config, tiny_vocabulary):
    """The summary is the sentence with the word "good"."""
    root = tmp_path_factory.mktemp("summarization")
    keras.utils.set_random_seed(0)
    BertBackbone(tiny_config).save_pretrained(root / "bert")
    BertTokenizer(tiny_vocabulary).save_pretrained(root / "bert")
    (root / "data").mkdir()
    rng = np.random.default_rng(0)
    for name, count in {"train": 80, "dev": 10, "test": 5}.items():
        rows = []
        for _ in range(count):
            sentences = ["The film.", "A bad film.", "The good film."]
            rng.shuffle(sentences)
            rows.append({"text": " ".join(sentences), "summary": "The good film."})
        lines = (json.dumps(row) + "\n" for row in rows)
        (root / "data" / f"{name}.jsonl").write_text("".join(lines))
    return root


def flags_of(root, method, *more):
    return (
        f"--method={method}",
        f"--data_dir={root}/data",
        "--source_column=text",
        f"--init_checkpoint={root}/bert",
        "--do_train",
        "--do_eval",
        "--do_predict",
        "--learning_rate=1e-2",
        "--train_batch_size=16",
        "--bias_correction",
        *more,
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "method, more",
    [
        ("abstractive", ("--max_target_length=8", "--no_repeat_ngram_size=3")),
        ("extractive", ("--num_sentences=1",)),
    ],
)
def test_trains_evaluates_and_predicts(start, tmp_path, method, more):
    pytest.importorskip("sacrebleu", reason="needs sacrebleu and rouge-score")
    pytest.importorskip("rouge_score", reason="needs sacrebleu and rouge-score")
    flags = flags_of(start, method, "--num_train_epochs=12", f"--output_dir={tmp_path}", *more)
    result = run("run_summarization", *flags)
    assert result.returncode == 0, result.stderr
    for name in ("eval", "test"):
        scores = results_in(tmp_path / f"{name}_results.txt")
        assert float(scores[f"{name}_rouge1"]) > 90 and f"{name}_bleu" not in scores
    row = json.loads((tmp_path / "test_predictions.jsonl").read_text().splitlines()[0])
    assert set(row) == {"text", "summary", "prediction"}
    # The trained model in --output_dir is found without --do_train.
    rows = (tmp_path / "test_predictions.txt").read_text()
    again = run("run_summarization", *flags, "--do_train=false", "--do_eval=false")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "test_predictions.txt").read_text() == rows


@pytest.mark.parametrize(
    "method, flag, message",
    [
        ("extractive", "--num_beams=4", "--num_beams must not be set with --method=extractive"),
        ("extractive", "--label_smoothing=0.1", "--label_smoothing and --focal_gamma must be"),
        ("abstractive", "--num_sentences=2", "--num_sentences must not be set with --method=abst"),
        ("abstractive", "--target_column=title", "train.jsonl, line 1 must have a title"),
    ],
)
def test_flags_of_the_other_method_are_refused(start, tmp_path, method, flag, message):
    result = run("run_summarization", *flags_of(start, method, f"--output_dir={tmp_path}"), flag)
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
