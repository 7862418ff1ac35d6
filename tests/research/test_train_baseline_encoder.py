"""The encoders that BERT is compared with, from text to the scores of a classifier and a tagger."""

import json

import numpy as np
import pytest

import bert_tf
from research.baselines import BaselineBackbone
from tests.tools.running import results_in, run

LABELS = {"good": "pos", "bad": "neg"}
FILLERS = ["the film", "film .", "the the film .", "a film", "the b .", "c the film"]
ROWS = [(f"{words} {word}", label) for words in FILLERS for word, label in LABELS.items()] * 3
SIZES = ("--hidden_size=16", "--lstm_units=16", "--context_size=3", "--max_seq_length=16")


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_vocabulary):
    """Text, a vocabulary, and the files of a classifier and a tagger, of the same sentences."""
    root = tmp_path_factory.mktemp("baseline_encoders")
    (root / "vocab.txt").write_text("".join(f"{piece}\n" for piece in tiny_vocabulary))
    following = {"pos": "e e .", "neg": "f the b"}  # only these differ
    lines = [f"{text} {following[label]}" for text, label in ROWS * 10]
    (root / "text.txt").write_text("\n\n".join(lines))
    (root / "classes").mkdir()
    (root / "tags").mkdir()
    for split in ("train", "dev"):
        (root / "classes" / f"{split}.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in ROWS))
        words = ("".join(f"{w} {LABELS.get(w, 'O')}\n" for w in text.split()) for text, _ in ROWS)
        (root / "tags" / f"{split}.txt").write_text("\n".join(words))
    return root


def trained(files, output, encoder, *flags):
    """The weights of the encoder by name, and training.json."""
    result = run(
        "research.train_baseline_encoder",
        f"--encoder={encoder}",
        f"--input_file={files}/text.txt",
        f"--vocab_file={files}/vocab.txt",
        f"--output_dir={output}",
        *(*SIZES, "--learning_rate=1e-2", *flags),
    )
    assert result.returncode == 0, result.stderr
    backbone = bert_tf.BertBackbone.from_pretrained(output / "model")
    assert isinstance(backbone, BaselineBackbone) == (encoder != "transformer")
    return encoder_weights(backbone), json.loads((output / "training.json").read_text())


def encoder_weights(backbone):
    weights = [*backbone.embeddings.weights, *backbone.encoder.weights]
    return {weight.path: weight.numpy() for weight in weights if "seed" not in weight.name}


def classified(files, model, output, *flags):
    """The accuracy on the dev file after fine-tuning, and the classifier."""
    result = run(
        "run_classifier",
        "--task_name=simple",
        f"--data_dir={files}/classes",
        f"--init_checkpoint={model}",
        f"--output_dir={output}",
        "--import_modules=research.baselines",
        *("--do_train", "--do_eval", "--train_batch_size=9", "--max_seq_length=16", *flags),
    )
    assert result.returncode == 0, result.stderr
    scores = results_in(output / "eval_results.txt")
    return float(scores["eval_accuracy"]), bert_tf.BertTextClassifier.from_pretrained(
        output / "model"
    )


@pytest.mark.parametrize(
    "encoder",
    [
        pytest.param("skip_gram", marks=pytest.mark.full),
        pytest.param("cbow", marks=pytest.mark.full),
        pytest.param("nnlm", marks=pytest.mark.full),
        pytest.param("elmo", marks=pytest.mark.full),
        "transformer",
    ],
)
def test_from_text_to_a_classifier(encoder, files, tmp_path):
    if encoder in ("skip_gram", "cbow"):
        pytest.importorskip("gensim", reason="needs gensim: pip install gensim")
    _, result = trained(files, tmp_path / "encoder", encoder, "--max_tokens=20000")
    assert result["encoder"] == encoder
    assert result["tokens"] == pytest.approx(0 if encoder == "transformer" else 20000, rel=0.02)
    if encoder in ("nnlm", "elmo"):
        assert result["heldout_loss"] < 0.6 * np.log(64)
        lines = (tmp_path / "encoder" / "log.jsonl").read_text().splitlines()
        losses = [json.loads(line)["loss"] for line in lines]
        assert losses[-1] < losses[0]
    rate = 2e-3 if encoder == "transformer" else 2e-2
    flags = ("--pooling=mean", f"--learning_rate={rate}", "--num_train_epochs=10")
    accuracy, model = classified(files, tmp_path / "encoder" / "model", tmp_path / "out", *flags)
    assert accuracy > 0.95  # by chance 0.5
    texts = [text for text, _ in ROWS[:4]]
    expected = model.predict(texts, verbose=0)
    model.save_pretrained(tmp_path / "again")
    again = bert_tf.BertTextClassifier.from_pretrained(tmp_path / "again")
    np.testing.assert_array_equal(again.predict(texts, verbose=0), expected)


@pytest.mark.full
@pytest.mark.parametrize("encoder", ["nnlm", "elmo"])
def test_features_of_a_frozen_encoder(encoder, files, tmp_path):
    before, _ = trained(files, tmp_path, encoder, "--max_tokens=10000")
    flags = ("--use_scalar_mix", "--freeze_layers=-1", "--learning_rate=0.1")
    more = ("--pooling=mean", "--num_train_epochs=30")
    accuracy, model = classified(files, tmp_path / "model", tmp_path / "out", *flags, *more)
    assert accuracy > 0.9
    assert model.use_scalar_mix and np.ptp(model.scalar_mix.scalars.numpy()) > 0
    for (name, old), new in zip(before.items(), encoder_weights(model.backbone).values()):
        np.testing.assert_array_equal(new, old, err_msg=name)


@pytest.mark.full
def test_a_tagger_on_a_frozen_encoder(files, tmp_path):
    before, _ = trained(files, tmp_path, "elmo", "--max_tokens=10000")
    result = run(
        "run_ner",
        f"--data_dir={files}/tags",
        "--scheme=none",
        "--import_modules=research.baselines",
        f"--init_checkpoint={tmp_path}/model",
        f"--output_dir={tmp_path}/out",
        *("--use_scalar_mix", "--freeze_layers=-1", "--learning_rate=0.1"),
        *("--do_train", "--do_eval", "--num_train_epochs=20", "--train_batch_size=9"),
    )
    assert result.returncode == 0, result.stderr
    assert float(results_in(tmp_path / "out" / "eval_results.txt")["eval_accuracy"]) > 0.95
    model = bert_tf.BertTokenClassifier.from_pretrained(tmp_path / "out" / "model")
    assert model.use_scalar_mix
    for (name, old), new in zip(before.items(), encoder_weights(model.backbone).values()):
        np.testing.assert_array_equal(new, old, err_msg=name)


@pytest.mark.full
def test_vectors_of_a_file(files, tmp_path, tiny_vocabulary):
    rows = {"good": [1.0, 0.5, 0.0], "bad": [-1.0, 0.5, 0.0], "film": [0.0, 0.0, 1.0]}
    lines = (f"{word} {' '.join(map(str, numbers))}\n" for word, numbers in rows.items())
    (tmp_path / "glove.txt").write_text("".join(lines))
    result = run(
        "research.train_baseline_encoder",
        "--encoder=word_vectors",
        f"--word_vectors_file={tmp_path}/glove.txt",
        f"--vocab_file={files}/vocab.txt",
        f"--output_dir={tmp_path}/encoder",
    )
    assert result.returncode == 0, result.stderr
    assert f"3 of {len(tiny_vocabulary)} pieces have a vector" in result.stdout
    assert json.loads((tmp_path / "encoder/training.json").read_text())["pieces_with_vectors"] == 3
    flags = ("--pooling=mean", "--freeze_layers=-1", "--learning_rate=0.1")
    model = tmp_path / "encoder" / "model"
    accuracy, model = classified(files, model, tmp_path / "out", *flags, "--num_train_epochs=10")
    assert accuracy > 0.95
    expected = np.zeros([len(tiny_vocabulary), 3], np.float32)
    for word, numbers in rows.items():
        expected[tiny_vocabulary.index(word)] = numbers
    np.testing.assert_array_equal(model.backbone.embeddings.word_embeddings.numpy(), expected)


def test_heads_divide_the_width(files, tmp_path):
    trained(files, tmp_path, "transformer", "--hidden_size=200")
    backbone = bert_tf.BertBackbone.from_pretrained(tmp_path / "model")
    assert backbone.config.num_attention_heads == 2  # 3 of 64 do not fit


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--encoder=elmo",), "--input_file must name a text file for --encoder=elmo"),
        (("--encoder=elmo", "--input_file=x", "--hidden_size=9"), "--hidden_size must be even"),
        (("--encoder=nnlm", "--input_file=x", "--heldout_share=1"), "--heldout_share must be"),
        (("--encoder=nnlm", "--input_file=x", "--log_steps=0"), "--log_steps=0"),
        (("--encoder=nnlm", "--input_file=x", "--max_minutes=0"), "--max_minutes must be above 0"),
        (("--encoder=transformer", "--dropout=1"), "--dropout=1"),
        (("--encoder=word_vectors",), "--word_vectors_file must be given with"),
        (("--encoder=transformer", "--word_vectors_file=x"), "and only with it"),
        (
            ("--encoder=word_vectors", "--word_vectors_file=x", "--hidden_size=3"),
            "--hidden_size must not be given",
        ),
    ],
)
def test_wrong_flags(flags, message, files, tmp_path):
    result = run(
        "research.train_baseline_encoder",
        f"--vocab_file={files}/vocab.txt",
        f"--output_dir={tmp_path}/out",
        *flags,
    )
    assert result.returncode == 1 and message in result.stderr
