"""Without optional packages: the README's first commands run, and the rest says what to install."""

import importlib
import sys

import numpy as np
import pytest

from bert_tf.base import optional_packages
from bert_tf.config import REGRESSION
from bert_tf.errors import UserError
from bert_tf.inputs.augmentation import TextAugmentation
from bert_tf.training import all_scores
from bert_tf.training.evaluation import scores
from tests.example_files import write_document_files
from tests.tools.running import results_in, run


def test_packages_are_hidden_only_in_the_block():
    import wave  # as good as any: it is imported already

    names = ("wave", "plistlib", "no_package_has_this_name")
    sys.modules.pop("plistlib", None)
    with optional_packages.without_packages(*names):
        assert sys.modules["wave"] is wave
        for name in names[1:]:
            with pytest.raises(ModuleNotFoundError):
                importlib.import_module(name)
    assert importlib.import_module("plistlib") and names[2] not in sys.modules


def hide():
    """Makes every optional package one that is not installed, in this process."""
    sys.modules["rjieba"] = None  # which is used instead of jieba
    for module in [*sys.modules, *optional_packages.PACKAGES]:
        if module.partition(".")[0] in optional_packages.PACKAGES:
            sys.modules[module] = None


@pytest.fixture
def hidden(monkeypatch):
    """`hide` for one test."""
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    hide()
    scores.has_scikit_learn.cache_clear()
    yield
    scores.has_scikit_learn.cache_clear()


@pytest.fixture(scope="module")
def directory(tmp_path_factory, tiny_vocabulary):
    directory = tmp_path_factory.mktemp("readme")
    write_document_files(directory, tiny_vocabulary)
    return directory


@pytest.mark.parametrize("module", optional_packages.PACKAGES)
def test_a_missing_package_is_named_with_its_extra(module, hidden):
    package, extra = optional_packages.PACKAGES[module]
    expected = rf"^{package} must be installed for this\..*`pip install 'bert-tf\[{extra}\]'`\.$"
    with pytest.raises(UserError, match=expected):
        optional_packages.require_package(module, "this")


def test_scores_without_scikit_learn(hidden, caplog):
    gold, probabilities = np.array([0, 1]), np.array([[0.9, 0.1], [0.6, 0.4]])
    results = all_scores(gold, probabilities)
    assert results == {"accuracy": 0.5, "loss": pytest.approx(-np.log([0.9, 0.4]).mean())}
    assert sorted(all_scores(gold, np.array([0.0, 1.0]), REGRESSION)) == ["loss", "mae"]
    assert caplog.text.count("run `pip install 'bert-tf[evaluate]'`") == 1
    scores.require_scores(["accuracy"])
    with pytest.raises(UserError, match="scikit-learn must be installed for f1, matthews"):
        scores.require_scores(["accuracy", "matthews", "f1"])


def test_augmentation_without_keras_nlp(hidden):
    TextAugmentation(insertion=0.1, deletion=0.1)
    with pytest.raises(UserError, match=r"keras-nlp must be .* 'bert-tf\[augmentation\]'"):
        TextAugmentation(swap=0.1)


@pytest.mark.full
def test_the_first_commands_of_the_readme_need_no_extra(directory):
    options = {"prepare": hide, "directory": directory}
    trained = run(
        "run_classifier",
        "--task_name=sst-2",
        "--data_dir=SST-2",
        "--init_checkpoint=uncased_L-12_H-768_A-12",
        "--do_train",
        "--do_eval",
        "--num_train_epochs=1",
        "--output_dir=trained",
        **options,
    )
    assert trained.returncode == 0, trained.stderr
    assert set(results_in(directory / "trained" / "eval_results.txt")) == {
        "eval_accuracy",
        "eval_loss",
        "global_step",
        "loss",
    }
    model = directory / "trained" / "model"
    predicted = run("predict", f"--model_dir={model}", "--text=a waste of time", **options)
    assert predicted.returncode == 0 and predicted.stdout.endswith("\ta waste of time\n")


TRAIN = ("--init_checkpoint=bert-base", "--do_train", "--do_eval", "--output_dir=out/never")


@pytest.mark.parametrize(
    "tool,flags,package",
    [
        ("run_classifier", ("--task_name=mrpc", "--data_dir=SST-2", *TRAIN), "scikit-learn"),
        (
            "run_classifier",
            ("--task_name=sst-2", "--data_dir=SST-2", "--keep_best=val_auc", *TRAIN),
            "scikit-learn",
        ),
        (
            "run_classifier",
            ("--task_name=sst-2", "--data_dir=SST-2", "--augment_swap=0.1", *TRAIN),
            "keras-nlp",
        ),
        ("run_ner", ("--data_dir=conll2003", *TRAIN), "seqeval"),
        (
            "run_translation",
            ("--data_dir=pairs", "--encoder=bert-base", "--decoder=bert-base", *TRAIN[1:]),
            "sacrebleu",
        ),
        (
            "evaluate",
            ("--kind=tags", "--predictions_file=out/test_predictions.txt", *TRAIN[3:]),
            "matplotlib",
        ),
        (
            "run_pretraining",
            (
                "--input_file=input.txt",
                "--vocab_file=vocab.txt",
                "--bert_config_file=config.json",
                "--segmenter=jieba",
                *TRAIN[1:],
            ),
            "jieba",
        ),
        (
            "build_vocab",
            ("--input_file=input.txt", "--output_file=v.txt", "--segmenter=jieba"),
            "jieba",
        ),
        (
            "build_vocab",
            ("--input_file=input.txt", "--output_file=v.json", "--algorithm=unigram"),
            "sentencepiece",
        ),
        ("predict", ("--model_dir=out/model", "--input_file=texts.parquet"), "pyarrow"),
        ("serve", ("--model=out/model",), "prometheus-client"),
        ("serve", ("--model=out/model", "--grpc_port=0"), "grpcio-health-checking"),
        ("serving_client", ("--model=reviews", "--text=a", "--protocol=grpc"), "tensorflow-serv"),
        ("beam_build_vocab", ("--input_file=input.txt", "--output_file=v.txt"), "apache-beam"),
    ],
)
def test_a_missing_package_is_reported_before_any_work(directory, tool, flags, package):
    (directory / "texts.parquet").touch()
    result = run(tool, *flags, prepare=hide, directory=directory)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.splitlines()[-1].startswith(f"error: {package}"), result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not (directory / "out" / "never" / "model").exists()
