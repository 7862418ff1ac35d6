"""tools/run_translation.py, run as a user runs it, on a tiny model and planted data."""

import dataclasses
import importlib.util
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_tf.training.callbacks import read_json_lines
from tests.tools.running import results_in, run

SOURCES, TARGETS = "abcdefgh", "ijklmnop"
HAS_SCORES = all(map(importlib.util.find_spec, ("sacrebleu", "rouge_score")))
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SOURCES, *TARGETS]


def pairs(count, seed):
    """Each letter of a source has one letter of the target."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        letters = rng.integers(len(SOURCES), size=rng.integers(1, 6))
        yield tuple(" ".join(letter[i] for i in letters) for letter in (SOURCES, TARGETS))


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_config):
    root = tmp_path_factory.mktemp("translation")
    config = dataclasses.replace(
        tiny_config,
        vocab_size=len(VOCABULARY),
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    (root / "config.json").write_text(json.dumps(config.to_huggingface()))
    (root / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    (root / "data").mkdir()
    for seed, (name, count) in enumerate({"train": 400, "dev": 12}.items()):
        lines = [f"{source}\t{target}\n" for source, target in pairs(count, seed)]
        if name == "dev":  # of two references
            lines[0] = f"{lines[0][:-1]}\ti i i\n"
        (root / "data" / f"{name}.tsv").write_text("".join(lines))
    (root / "data" / "test.jsonl").write_text('{"source": "a b"}\n{"source": "h"}\n')
    return root


def flags_of(root, *more):
    return (
        f"--data_dir={root}/data",
        f"--bert_config_file={root}/config.json",
        f"--vocab_file={root}/vocab.txt",
        "--do_lower_case=false",
        "--do_train",
        "--learning_rate=1e-2",
        "--lr_schedule=noam",
        "--bias_correction",
        "--label_smoothing=0.1",
        "--train_token_budget=100",
        "--num_examples=1",
        "--log_steps=2",
        *more,
    )


@pytest.fixture(scope="module")
def trained(start, is_full):
    flags = flags_of(
        start,
        f"--output_dir={start}/out",
        f"--num_train_epochs={20 if is_full else 0.25}",
        "--save_checkpoints_steps=2",
        "--average_checkpoints=2",
        f"--do_eval={HAS_SCORES}",
        "--do_predict",
        "--num_beams=2",
        "--max_new_tokens=8",
    )
    result = run("run_translation", *flags)
    assert result.returncode == 0, result.stderr
    return result


def test_trains_and_predicts(start, trained):
    assert len((start / "out" / "test_predictions.txt").read_text().splitlines()) == 2
    assert not (start / "out" / "test_results.txt").exists()  # it has no references
    (source, target), *_ = pairs(12, 1)
    assert f"  source     {source}\n  reference  {target}\n  output " in trained.stdout
    logged = read_json_lines(start / "out" / "log.jsonl")
    assert any("val_perplexity" in line for line in logged)


@pytest.mark.skipif(not HAS_SCORES, reason="needs sacrebleu and rouge-score")
def test_evaluates(start, trained, is_full):
    """In the full suite it trains long enough to learn."""
    scores = results_in(start / "out" / "eval_results.txt")
    names = ("bleu", "chrf", "chrf++", "ter", "loss", "perplexity")
    assert set(scores) >= {f"eval_{name}" for name in names}
    assert float(scores["eval_bleu"]) > 90 or not is_full
    texts = (start / "out" / "eval_predictions.txt").read_text().splitlines()
    rows = [json.loads(line) for line in open(start / "out" / "eval_predictions.jsonl")]
    sources, targets = zip(*pairs(12, 1))
    assert [row["source"] for row in rows] == list(sources)
    assert [row["target"] for row in rows] == [[targets[0], "i i i"], *targets[1:]]
    assert [row["prediction"] for row in rows] == texts
    assert all(set(text.split()) <= {*SOURCES, *TARGETS, "[UNK]"} for text in texts) or not is_full


def test_the_model_is_the_mean_of_checkpoints(start, trained):
    step = max(int(path.name[5:]) for path in (start / "out" / "checkpoints").glob("ckpt-*"))
    steps = [step - step % 2 - 2, step - step % 2]
    assert f"the mean of the checkpoints of the steps {steps}" in trained.stdout
    name = "decoder.cls.predictions.bias"
    saved = load_file(start / "out" / "model" / "model.safetensors")[name]
    biases = []
    for step in steps:
        tensors = load_file(start / "out" / "checkpoints" / f"ckpt-{step}/variables.safetensors")
        biases.append(tensors["model/bert_encoder_decoder/decoder/head/bias"])
    np.testing.assert_allclose(saved, np.mean(biases, axis=0), atol=1e-7)


@pytest.mark.full
@pytest.mark.skipif(not HAS_SCORES, reason="needs sacrebleu and rouge-score")
def test_one_bert_learns_to_translate(start):
    flags = (f"--output_dir={start}/prefix_lm", "--architecture=prefix_lm", "--max_new_tokens=6")
    lengths = ("--max_source_length=8", "--max_target_length=8")
    result = run("run_translation", *flags_of(start, *flags, *lengths, "--num_train_epochs=20"))
    assert result.returncode == 0, result.stderr
    evaluation = ("--do_train=false", "--bert_config_file=", "--vocab_file=", "--do_eval")
    result = run("run_translation", *flags_of(start, *flags, *evaluation))
    assert result.returncode == 0, result.stderr
    scores = results_in(start / "prefix_lm" / "eval_results.txt")
    assert float(scores["eval_bleu"]) > 90


@pytest.mark.full
def test_more_checkpoints_than_a_run_saves(start, tmp_path):
    flags = (f"--output_dir={tmp_path}", "--average_checkpoints=9")
    result = run("run_translation", *flags_of(start, *flags))
    assert result.returncode == 1, result.stderr
    assert "--average_checkpoints must be at most 0, the number of checkpoints" in result.stderr


@pytest.mark.full
def test_a_run_that_goes_on_ends_with_the_same_weights(start):
    """The steps of a warm-up do not depend on --max_train_steps."""
    common = ("--save_checkpoints_steps=2", "--num_warmup_steps=4")
    for name, ends in {"whole": (7,), "parts": (3, 5, 7)}.items():
        for end in ends:
            flags = (f"--output_dir={start}/{name}", f"--max_train_steps={end}", *common)
            result = run("run_translation", *flags_of(start, *flags))
            assert result.returncode == 0, result.stderr
    whole, parts = (
        load_file(start / name / "model/model.safetensors") for name in ("whole", "parts")
    )
    assert whole.keys() == parts.keys()
    for name in whole:
        np.testing.assert_array_equal(parts[name], whole[name], err_msg=name)


BAD_FLAGS = {
    "no start": (["--bert_config_file="], "Exactly one of --init_checkpoint"),
    "two starts": (["--init_checkpoint=model"], "Received: --init_checkpoint=model, --bert_"),
    "half a pair": (["--encoder=model"], "--encoder and --decoder must be set together"),
    "one BERT": (
        ["--architecture=prefix_lm", "--share_encoder_decoder_weights"],
        "--share_encoder_decoder_weights=True must be used with --architecture=encoder_decoder",
    ),
    "two limits": (["--train_batch_size=8"], "At most one of --train_batch_size and"),
    "positions": (["--max_target_length=99"], "`max_target_length` must be in [3, 16]"),
    "schedule": (
        ["--lr_power=2"],
        "--lr_power must be used with --lr_schedule=polynomial. Received: --lr_power=2.0, --lr_sch",
    ),
    "beams": (["--num_beams=50"], "`num_beams` must be below the size of the vocabulary, 21"),
}


@pytest.mark.parametrize("flags, message", BAD_FLAGS.values(), ids=BAD_FLAGS)
def test_bad_flags_end_with_one_line(start, tmp_path, flags, message):
    result = run("run_translation", *flags_of(start, f"--output_dir={tmp_path}", *flags))
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "line, message",
    [
        (" \tj", "train.tsv, line 2 must have a source. Received: ' '"),
        ("a", "train.tsv, line 2 must have a target. Received: None"),
        ("a\tb\tc", "train.tsv, line 2 must be source<TAB>target. Received: 3 fields"),
    ],
)
def test_bad_lines_are_found(start, tmp_path, line, message):
    (tmp_path / "train.tsv").write_text(f"a\ti\n{line}\n")
    flags = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out")
    result = run("run_translation", *flags_of(start, *flags))
    assert result.returncode == 1 and message in result.stderr, result.stderr


@pytest.mark.parametrize(
    "lines, message",
    [
        ([{"more": "j"}], "dev.jsonl, line 2 must have a target before further references"),
        ([{"target": "j", "more": 3}], "line 2 must have texts as further references. Received: ["),
        ([{"target": "j", "more": " "}], "line 2 must have texts as further references"),
        ([{"target": "j"}], "must have the columns --reference_columns=more. Received: no more"),
    ],
)
def test_bad_references_are_found(start, tmp_path, lines, message):
    rows = [{"source": "a", "target": "i"}, *({"source": "b"} | line for line in lines)]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = (f"--data_dir={tmp_path}", f"--output_dir={tmp_path}/out", "--reference_columns=more")
    more = ("--do_train=false", "--bert_config_file=", "--do_eval")
    if "before further" in message:
        (tmp_path / "dev.jsonl").rename(tmp_path / "test.jsonl")
        message, more = message.replace("dev", "test"), (*more[:2], "--do_predict")
    result = run("run_translation", *flags_of(start, *flags, *more))
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert "Traceback" not in result.stderr


def test_a_vocabulary_without_an_end_token(start, tmp_path):
    words = "\n".join(word for word in VOCABULARY if word != "[SEP]")
    (tmp_path / "vocab.txt").write_text(f"{words}\nz\n")
    flags = (f"--vocab_file={tmp_path}/vocab.txt", f"--output_dir={tmp_path}/out")
    result = run("run_translation", *flags_of(start, *flags))
    assert result.returncode == 1 and "[SEP]" in result.stderr, result.stderr
    assert "Traceback" not in result.stderr
