"""run_squad, run as a user runs it, on a tiny model: train, answer, evaluate, answer again."""

import json

import pytest

from bert_tf import BertBackbone, BertConfig, BertQuestionAnswerer, BertTokenizer
from tests.tasks.question_answering.test_model import planted
from tests.tools.running import results_in, run


def write_squad(path, seed, count, with_answers=True):
    qas = []
    for number, (question, context, answer) in enumerate(zip(*planted(seed, count))):
        item = {"id": f"q{number}", "question": question}
        if with_answers:
            item["is_impossible"] = answer is None
            golds = [] if answer is None else [answer]
            item["answers"] = [{"text": text, "answer_start": start} for text, start in golds]
        qas.append({"context": context, "qas": [item]})
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": qas}]}))


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_vocabulary):
    root = tmp_path_factory.mktemp("squad")
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
        initializer_range=0.1,
    )
    BertBackbone(config).save_pretrained(root / "checkpoint")
    BertTokenizer(tiny_vocabulary).save_pretrained(root / "checkpoint")
    write_squad(root / "train.json", 1, 400)
    write_squad(root / "dev.json", 2, 60)
    return root


@pytest.fixture(scope="module")
def trained(start):
    output = start / "out"
    content = json.loads((start / "train.json").read_text())
    content["data"][0]["paragraphs"][1]["qas"][0]["answers"][0]["answer_start"] += 1
    (start / "train_with_hole.json").write_text(json.dumps(content))
    result = run(
        "run_squad",
        f"--train_file={start}/train_with_hole.json",
        f"--predict_file={start}/dev.json",
        f"--output_dir={output}",
        f"--init_checkpoint={start}/checkpoint",
        "--do_train",
        "--do_predict",
        "--version_2_with_negative",
        "--max_seq_length=24",
        "--doc_stride=8",
        "--max_query_length=4",
        "--learning_rate=4e-3",
        "--num_train_epochs=4.5",
        "--save_checkpoints_steps=50",
        "--n_best_size=5",
        "--label_smoothing=0.05",
        "--layer_decay=0.95",
        "--gradient_accumulation_steps=2",
    )
    assert result.returncode == 0, result.stderr
    return output, result


def test_writes_the_originals_files(trained, start):
    output, result = trained
    assert "1 of 400 questions are left out of training" in result.stderr
    assert sorted(path.name for path in output.iterdir()) == [
        "checkpoints",
        "eval_results.txt",
        "model",
        "nbest_predictions.json",
        "null_odds.json",
        "predictions.json",
    ]
    predictions = json.loads((output / "predictions.json").read_text())
    n_best = json.loads((output / "nbest_predictions.json").read_text())
    null_odds = json.loads((output / "null_odds.json").read_text())
    assert list(predictions) == list(n_best) == list(null_odds) == [f"q{n}" for n in range(60)]
    for id, rows in n_best.items():
        assert list(rows[0]) == ["text", "probability", "start_logit", "end_logit"]
        assert sum(row["probability"] for row in rows) == pytest.approx(1.0)
        assert any(row["text"] == "" for row in rows)
        spans = [row["text"] for row in rows if row["text"]]
        assert predictions[id] == ("" if null_odds[id] > 0.0 else spans[0])
    results = results_in(output / "eval_results.txt")
    assert float(results["exact"]) > 95.0 and int(results["total"]) == 60
    assert float(results["best_exact"]) >= float(results["exact"])
    assert {"HasAns_f1", "NoAns_f1", "best_f1_thresh"} <= set(results)


@pytest.mark.full
def test_the_trained_model_answers_alone(trained, start):
    output, _ = trained
    before = json.loads((output / "predictions.json").read_text())
    write_squad(start / "test.json", 2, 60, with_answers=False)
    (output / "eval_results.txt").unlink()
    result = run(
        "run_squad",
        f"--predict_file={start}/test.json",
        f"--output_dir={output}",
        "--do_predict",
        "--predict_batch_size=3",
    )
    assert result.returncode == 0, result.stderr
    assert json.loads((output / "predictions.json").read_text()) == before
    assert not (output / "eval_results.txt").exists()


@pytest.mark.full
def test_an_lstm_is_trained_and_opened_again(start, tmp_path):
    shared = ("--do_predict", f"--predict_file={start}/dev.json", f"--output_dir={tmp_path}/out")
    result = run(
        "run_squad",
        *shared,
        f"--train_file={start}/dev.json",
        f"--init_checkpoint={start}/checkpoint",
        "--do_train",
        "--version_2_with_negative",
        "--max_seq_length=24",
        "--doc_stride=8",
        "--max_query_length=4",
        "--num_train_epochs=0.5",
        "--lstm_units=8,6",
        "--lstm_bidirectional=false",
    )
    assert result.returncode == 0, result.stderr
    model = BertQuestionAnswerer.from_pretrained(tmp_path / "out" / "model")
    assert model.lstm_units == [8, 6] and model.lstm_bidirectional is False
    assert not model.untrained_heads
    predictions = tmp_path / "out" / "nbest_predictions.json"
    before = json.loads(predictions.read_text())
    predictions.unlink()
    result = run("run_squad", *shared)
    assert result.returncode == 0, result.stderr
    assert json.loads(predictions.read_text()) == before


@pytest.mark.parametrize(
    "flags,words",
    [
        ((), "At least one of --do_train"),
        (("--do_train", "--train_file=x"), "--init_checkpoint must be set with --do_train"),
        (("--do_predict",), "--predict_file must be set with --do_predict"),
        (
            ("--do_predict", "--predict_file=x", "--lora_rank=2", "--freeze_layers=1"),
            "At most one of",
        ),
        (("--do_predict", "--predict_file=tests/conftest.py"), "must be JSON"),
        (
            (
                "--do_train",
                "--train_file=START/train.json",
                "--init_checkpoint=START/checkpoint",
                "--version_2_with_negative",
                "--lstm_units=8,0",
            ),
            "--lstm_units must be positive whole numbers",
        ),
        (
            ("--do_train", "--train_file=START/dev.json", "--init_checkpoint=START/checkpoint"),
            "15 without, the first with id 'q0'. For SQuAD 2.0, set --version_2_with_negative",
        ),
    ],
)
def test_wrong_flags_are_reported_without_a_traceback(start, tmp_path, flags, words):
    flags = [flag.replace("START", str(start)) for flag in flags]
    result = run("run_squad", f"--output_dir={tmp_path}/out", *flags)
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
