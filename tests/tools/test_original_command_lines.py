"""The command lines of google-research/bert's README, with every flag of its programs."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from tests.tools.running import results_in, run

TPU_FLAGS = (
    "--use_tpu=True",
    "--tpu_name=grpc://10.0.0.1:8470",
    "--tpu_zone=a",
    "--gcp_project=b",
    "--master=c",
    "--num_tpu_cores=8",
    "--iterations_per_loop=1000",
)


@pytest.fixture(scope="module")
def base(tmp_path_factory, tiny_config, tiny_vocabulary):
    """$BERT_BASE_DIR, and the data of each program in the same place."""
    root = tmp_path_factory.mktemp("uncased_L-2_H-32_A-4")
    BertBackbone(tiny_config).save_pretrained(root, format="tf1")
    (root / "vocab.txt").write_text("\n".join(tiny_vocabulary))
    header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    pairs = [("1", "good film\tthe good film"), ("0", "good film\tbad")] * 5
    rows = "".join(f"{label}\t1\t2\t{texts}\n" for label, texts in pairs)
    for name in ("train", "dev"):
        (root / f"{name}.tsv").write_text(header + rows)
    rows = "".join(f"{index}\t1\t2\t{texts}\n" for index, (_, texts) in enumerate(pairs))
    (root / "test.tsv").write_text(header.replace("Quality", "index") + rows)
    answers = [{"text": "café", "answer_start": 4}]
    paragraphs = [
        {
            "context": "the café film",
            "qas": [{"id": str(number), "question": "good", "answers": answers}],
        }
        for number in range(8)
    ]
    (root / "squad.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    text = "the good film\nthe bad film\nbad film\n\na good film\nthe bad\ngood\n\n"
    (root / "sample_text.txt").write_text(text * 10)
    return root


def files_of(base):
    return (f"--vocab_file={base}/vocab.txt", f"--bert_config_file={base}/bert_config.json")


def checked(tool, *flags):
    result = run(tool, *flags)
    text = result.stdout + result.stderr
    assert result.returncode == 0, text
    return text


def weights(output):
    return load_file(output / "model" / "model.safetensors")


def classifier_flags(base, output):
    return (
        "--task_name=MRPC",
        f"--data_dir={base}",
        *files_of(base),
        "--max_seq_length=24",
        f"--output_dir={output}",
    )


def classifier_training(base, output):
    return (
        *classifier_flags(base, output),
        "--do_train=true",
        f"--init_checkpoint={base}/bert_model.ckpt",
        "--train_batch_size=4",
        "--learning_rate=2e-3",
        "--num_train_epochs=2.0",
        "--save_checkpoints_steps=4",
    )


@pytest.fixture(scope="module")
def classifier(base, tmp_path_factory):
    """The output directory of a training run, and what it printed."""
    output = tmp_path_factory.mktemp("classifier") / "out"
    training = classifier_training(base, output)
    return output, checked("run_classifier", *training, "--do_eval=true", *TPU_FLAGS)


def test_run_classifier(classifier):
    output, text = classifier
    assert text.count(": ignored. google-research") == 1 and "--use_tpu, --num_tpu_cores" in text
    results = results_in(output / "eval_results.txt")
    assert results["global_step"] == "6" and results["loss"] == results["eval_loss"]


@pytest.mark.full
def test_run_classifier_killed_and_started_again(base, classifier, tmp_path):
    """Killed after step 4, it ends as the unbroken run."""
    output = tmp_path / "out"
    shutil.copytree(classifier[0], output)
    shutil.rmtree(output / "checkpoints" / "ckpt-6")
    shutil.rmtree(output / "model")
    assert "ckpt-4" in checked("run_classifier", *classifier_training(base, output))
    first, again = weights(classifier[0]), weights(output)
    assert first.keys() == again.keys()
    for name, values in again.items():
        np.testing.assert_array_equal(values, first[name], err_msg=name)


@pytest.mark.full
def test_run_classifier_predicts(base, classifier):
    output, _ = classifier
    first = weights(output)
    # A finished run is not done again.
    training = classifier_training(base, output)
    text = checked("run_classifier", *training, "--do_predict=true")
    assert "Nothing is left to train" in text and "Epoch" not in text
    for name, values in weights(output).items():
        np.testing.assert_array_equal(values, first[name], err_msg=name)

    expected = np.loadtxt(output / "test_results.tsv")
    assert expected.shape == (10, 2)
    # The trained model, by its output directory; with the one before, the directory's model works.
    flags = classifier_flags(base, output)
    for trained in (output, base / "bert_model.ckpt"):
        checked("run_classifier", *flags, "--do_predict=true", f"--init_checkpoint={trained}")
        np.testing.assert_array_equal(np.loadtxt(output / "test_results.tsv"), expected)


@pytest.mark.full
def test_run_squad(base, tmp_path):
    output = tmp_path / "out"
    flags = (
        *files_of(base),
        f"--init_checkpoint={base}/bert_model.ckpt",
        f"--train_file={base}/squad.json",
        "--do_predict=True",
        f"--predict_file={base}/squad.json",
        "--train_batch_size=4",
        "--learning_rate=3e-3",
        "--num_train_epochs=1.0",
        "--max_seq_length=24",
        "--max_query_length=4",
        "--doc_stride=12",
        f"--output_dir={output}",
        *TPU_FLAGS,
    )
    text = checked("run_squad", *flags, "--do_train=True")
    assert text.count(": ignored. google-research") == 1
    written = (output / "nbest_predictions.json").read_bytes()
    assert written.isascii() and b"caf\\u00e9" in written  # as json.dumps of the original
    text = checked("run_squad", *flags, "--do_train=False", "--null_score_diff_threshold=-1.0")
    assert f"{output}/model is used instead" in text
    assert (output / "nbest_predictions.json").read_bytes() == written


@pytest.mark.full
def test_extract_features(base, tmp_path):
    (tmp_path / "input.txt").write_text("good film ||| the bad film\n")
    text = checked(
        "extract_features",
        *files_of(base),
        f"--input_file={tmp_path}/input.txt",
        f"--output_file={tmp_path}/output.jsonl",
        f"--init_checkpoint={base}/bert_model.ckpt",
        "--layers=-1,-2",
        "--max_seq_length=24",
        "--batch_size=8",
        "--use_tpu=False",
        "--master=c",
        "--num_tpu_cores=8",
        "--use_one_hot_embeddings=True",
    )
    assert text.count(": ignored. google-research") == 1 and (tmp_path / "output.jsonl").exists()


@pytest.mark.full
def test_create_pretraining_data_and_run_pretraining(base, tmp_path):
    records, output = tmp_path / "tf_examples.tfrecord", tmp_path / "out"
    checked(
        "create_pretraining_data",
        f"--input_file={base}/sample_text.txt",
        f"--output_file={records}",
        f"--vocab_file={base}/vocab.txt",
        "--do_lower_case=True",
        "--max_seq_length=24",
        "--max_predictions_per_seq=4",
        "--masked_lm_prob=0.15",
        "--random_seed=12345",
        "--dupe_factor=2",
        "--num_processes=1",
    )
    flags = (
        f"--input_file={records}",
        f"--output_dir={output}",
        "--do_train=True",
        "--do_eval=True",
        f"--bert_config_file={base}/bert_config.json",
        "--train_batch_size=4",
        "--max_seq_length=24",
        "--max_predictions_per_seq=4",
        "--num_train_steps=20",
        "--learning_rate=2e-3",
        "--max_eval_steps=2",
        "--log_steps=1",
    )
    ignored = [flag for flag in TPU_FLAGS if not flag.startswith(("--use_tpu", "--tpu_name"))]
    text = checked(
        "run_pretraining",
        *flags,
        *ignored,
        f"--vocab_file={base}/vocab.txt",
        f"--init_checkpoint={base}/bert_model.ckpt",
    )
    assert text.count(": ignored. google-research") == 1
    assert (output / "model" / "vocab.txt").read_text().split() == (
        base / "vocab.txt"
    ).read_text().split()
    rates = [json.loads(line)["learning_rate"] for line in open(output / "log.jsonl")]
    assert int(np.argmax(rates)) <= 2  # the default warm-up is 2 of 20 steps
    results = (output / "eval_results.txt").read_text()
    assert "global_step = 20\n" in results and "\nloss = " in results


@pytest.mark.full
def test_a_classifier_that_the_original_trained(base, tiny_config, tmp_path):
    """`model.ckpt-343` in its output directory, with no word about the labels."""
    model = BertTextClassifier(
        BertBackbone(tiny_config), num_classes=2, tokenizer=BertTokenizer(base / "vocab.txt")
    )
    model.save_pretrained(tmp_path / "saved", format="tf1")
    (tmp_path / "out").mkdir()
    for path in (tmp_path / "saved").glob("bert_model.ckpt*"):
        path.rename(tmp_path / "out" / path.name.replace("bert_model.ckpt", "model.ckpt-343"))
    checked(
        "run_classifier",
        "--task_name=MRPC",
        f"--data_dir={base}",
        *files_of(base),
        "--do_predict=true",
        f"--init_checkpoint={tmp_path}/out",
        "--max_seq_length=24",
        f"--output_dir={tmp_path}/out",
    )
    logits = model.predict((["good film", "good film"], ["the good film", "bad"]), verbose=0)
    np.testing.assert_allclose(
        np.loadtxt(tmp_path / "out" / "test_results.tsv")[:2],
        model.probabilities(logits),
        atol=1e-5,
    )
