"""The tagging tools, run as a user runs them, on a tiny model."""

import functools
import importlib.util
import itertools
import sys
import types

import keras
import pytest

from bert_tf import BertBackbone, BertTokenClassifier, BertTokenizer
from bert_tf.tasks.token_classification.files import conll_lines, read_conll
from tests.text import fake_jieba
from tests.tools.running import results_in, run

# IOB1 in the file; the model learns IOB2.
SENTENCES = [
    (["the", "good", "film", "."], ["O", "I-X", "I-X", "O"]),
    (["bad", "good", "good", "."], ["O", "I-X", "B-X", "O"]),
] * 8


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_config, tiny_vocabulary):
    root = tmp_path_factory.mktemp("ner")
    BertBackbone(tiny_config).save_pretrained(root / "checkpoint")
    BertTokenizer(tiny_vocabulary, lowercase=False).save_pretrained(root / "checkpoint")
    (root / "data").mkdir()
    for split in ("train", "dev", "test"):
        (root / "data" / f"{split}.txt").write_text("".join(conll_lines(SENTENCES)))
    return root


def flags_for(start, *more):
    return (
        f"--data_dir={start}/data",
        f"--init_checkpoint={start}/checkpoint",
        f"--output_dir={start}/out",
        "--max_seq_length=16",
        "--do_train",
        *more,
    )


def test_trains_evaluates_and_predicts(start):
    # The last label is not in the training data: it counts as an error and is reported.
    test = [*SENTENCES, (["abc"], ["I-Z"])]
    (start / "test.txt").write_text("".join(conll_lines(test)))
    result = run(
        "run_ner",
        *flags_for(start, "--do_eval", "--do_predict", "--use_crf", "--learning_rate=5e-3"),
        f"--test_file={start}/test.txt",
        "--num_train_epochs=10.5",
        "--train_batch_size=8",
    )
    assert result.returncode == 0, result.stderr
    out = start / "out"
    for name in ("eval", "test"):
        scores = results_in(out / f"{name}_results.txt")
        assert float(scores[f"{name}_f1"]) > 0.95
        assert {f"{name}_accuracy", f"{name}_precision_X"} <= set(scores)
    assert "1 words have tags that the model does not know" in result.stdout
    assert float(scores["test_recall_Z"]) == 0.0
    predictions = read_conll(out / "test_predictions.txt")
    assert predictions[1].words == SENTENCES[1][0]
    assert predictions[1].tags == ["O", "B-X", "B-X", "O"]
    model = BertTokenClassifier.from_pretrained(out / "model")
    assert model.labels == ["O", "B-X", "I-X"] and model.use_crf
    assert [span.text for span in model.tag("the good film.")] == ["good film"]


def test_tags_in_another_precision(start):
    keras.utils.set_random_seed(1)
    model = BertTokenClassifier.from_pretrained(start / "checkpoint", labels=["O", "B-X", "I-X"])
    for weight in model.trainable_weights:
        if len(weight.shape) == 2:  # large, so that rounding changes tags
            weight.assign(keras.random.normal(weight.shape, stddev=0.5))
    model.save_pretrained(start / "model")
    words = [list(words) for words in itertools.product(["the", "good", "bad", "film"], repeat=4)]
    text = start / "product.txt"
    text.write_text("".join(conll_lines((row, ["O"] * 4) for row in words)))
    tags = model.predict_tags(words)
    model.optimize_for_inference("int8")
    expected = model.predict_tags(words)
    assert expected != tags
    output = start / "int8"
    result = run(
        "run_ner",
        f"--init_checkpoint={start}/model",
        f"--test_file={text}",
        f"--output_dir={output}",
        "--do_predict",
        "--max_seq_length=16",
        "--precision=int8",
    )
    assert result.returncode == 0, result.stderr
    assert [list(row.tags) for row in read_conll(output / "test_predictions.txt")] == expected


@pytest.mark.full
def test_fine_tuning_flags(start):
    """Smoothed labels, balanced classes, LoRA, the best epoch."""
    output = start / "fine_tuning"
    result = run(
        "run_ner",
        *flags_for(start, "--do_eval", "--do_predict", "--label_smoothing=0.1"),
        f"--output_dir={output}",
        "--class_weights=balanced",
        "--lora_rank=8",
        "--lora_target_modules=query_key_value,intermediate,output_dense",
        "--learning_rate=1e-2",
        "--num_train_epochs=20",
        "--train_batch_size=8",
        "--classifier_dropout=0",
        "--keep_best=val_f1",
        "--early_stopping_patience=10",
        "--lstm_units=32,16",
        "--space_before_all_words",
        "--layer_decay=0.9",
    )
    assert result.returncode == 0, result.stderr
    best = float(results_in(output / "eval_results.txt")["eval_f1"])
    assert best > 0.95
    epochs = [float(part.split()[0]) for part in result.stdout.split("val_f1: ")[1:]]
    assert best == pytest.approx(max(epochs), abs=1e-3)
    assert (output / "lora.safetensors").exists()
    model = BertTokenClassifier.from_pretrained(output / "model")
    assert model.lora is None and model.lstm_units == [32, 16]
    assert model.space_before_all_words is True


def test_wrong_flags_are_refused(start):
    for flags, message in (
        (("--use_crf", "--label_smoothing=0.1"), "--use_crf must not be combined with"),
        (("--use_crf", "--class_weights=balanced"), "--use_crf must not be combined with"),
        (("--keep_best=val_f1", "--num_train_epochs=2"), "must have a dev file to score"),
        (("--early_stopping_patience=2",), "--keep_best must be set with"),
        (("--lstm_units=8,0",), "--lstm_units must be positive whole numbers"),
        (("--precision=bfloat16",), "--precision must not be combined with --do_train"),
    ):
        result = run("run_ner", *flags_for(start, *flags))
        assert result.returncode == 1 and message in result.stderr
        assert "Traceback" not in result.stderr


def test_bad_files_end_with_their_line(start):
    holes = start / "holes.txt"
    holes.write_text("good I-X\nfilm\n")
    result = run("run_ner", *flags_for(start, f"--train_file={holes}"))
    assert result.returncode == 1
    assert "holes.txt, line 2 must have 2 columns" in result.stderr
    assert "Traceback" not in result.stderr
    holes.write_text("good NN\n")
    result = run("run_ner", *flags_for(start, f"--train_file={holes}"))
    assert result.returncode == 1 and "--scheme=none" in result.stderr


def test_prepares_chinese_news(tmp_path):
    corpus = tmp_path / "199801.txt"
    lines = [f"李/nr 鹏/nr 说/v {number}/m 。/w\n" for number in range(20)]
    corpus.write_text("".join(lines), encoding="utf-8")
    result = run(
        "research.prepare_chinese_news", f"--input_file={corpus}", f"--output_dir={tmp_path}/news"
    )
    assert result.returncode == 0, result.stderr
    assert "train: 16 lines" in result.stdout
    (first, *_) = read_conll(tmp_path / "news" / "train.txt")
    assert first == (["李", "鹏", "说", "0", "。"], ["B-nr", "I-nr", "O", "O", "O"])
    assert (
        (tmp_path / "news" / "pretraining.txt").read_text(encoding="utf-8").startswith("李鹏说0。")
    )


def install_jieba():
    cut = functools.partial(fake_jieba.cut, hmm=False)
    sys.modules["jieba"] = types.SimpleNamespace(lcut=cut)


def test_jiebas_words_are_scored(tmp_path):
    """北京 大学 is one word for the fake jieba, and 好好好 three."""
    words = ["北京", "大学", "的", "1998", "年", "今天", "天气"]
    corpus = tmp_path / "199801.txt"
    line = " ".join(f"{word}/n" for word in words)
    corpus.write_text("".join(f"{line} {'好' * n}/n\n" for n in range(1, 21)), encoding="utf-8")
    news = f"--output_dir={tmp_path}/words"
    result = run(
        "research.prepare_chinese_news", f"--input_file={corpus}", news, "--task=segmentation"
    )
    assert result.returncode == 0, result.stderr
    result = run(
        "research.baseline_segmentation",
        f"--data_dir={tmp_path}/words",
        f"--output_dir={tmp_path}/jieba",
        prepare=install_jieba,
    )
    assert result.returncode == 0, result.stderr
    scores = results_in(tmp_path / "jieba" / "test_results.txt")
    # Two lines: 8 words each; 5 of them are found, and 19 and 20 words of one character are not.
    assert float(scores["test_recall"]) == 10 / 16
    assert float(scores["test_precision"]) == pytest.approx(10 / (2 * 6 + 19 + 20), abs=1e-6)


@pytest.mark.peers
def test_baseline(start):
    if importlib.util.find_spec("pycrfsuite") is None:
        pytest.skip("needs python-crfsuite")
    flags = (f"--data_dir={start}/data", f"--output_dir={start}/baseline")
    result = run("research.baseline_ner", *flags)
    assert result.returncode == 0, result.stderr
    assert "test_f1 = 1.000000" in result.stdout
    # Next to a network that knows nothing.
    options = {"labels": ["O", "B-X", "I-X"], "use_crf": True}
    untrained = BertTokenClassifier.from_pretrained(start / "checkpoint", **options)
    untrained.save_pretrained(start / "untrained")
    flags = (
        f"--data_dir={start}/data",
        f"--crf={start}/baseline/model.crfsuite",
        f"--model_dir={start}/untrained",
        f"--output_dir={start}/both",
        "--weights=0,9",
    )
    result = run("research.combine_taggers", *flags)
    assert result.returncode == 0, result.stderr
    assert "test_f1 = 1.000000" in result.stdout
