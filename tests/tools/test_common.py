"""What all tools have in common: checkpoints without a head, and whether text is lowered."""

import json
import shutil

import pytest

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from tests.tools.running import run


@pytest.fixture(scope="module")
def start(tmp_path_factory, tiny_config, tiny_vocabulary):
    """An encoder without a head, and files of every task."""
    root = tmp_path_factory.mktemp("tools")
    BertBackbone(tiny_config).save_pretrained(root / "encoder")
    tokenizer = BertTokenizer(tiny_vocabulary)
    tokenizer.save_pretrained(root / "encoder")
    classifier = BertTextClassifier(
        BertBackbone(tiny_config), labels=["neg", "pos"], tokenizer=tokenizer
    )
    classifier.save_pretrained(root / "classifier")
    for name in ("train", "dev", "test"):
        (root / f"{name}.tsv").write_text("good film\tpos\nbad film\tneg\n")
        (root / f"{name}.txt").write_text("good B-X\nfilm O\n\n")
    row = "0,good,film,a,b,c,d,0\n"
    (root / "test.csv").write_text(",sent1,sent2,ending0,ending1,ending2,ending3,label\n" + row)
    paragraph = {"context": "the film", "qas": [{"id": "1", "question": "good"}]}
    (root / "squad.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    shutil.copytree(root, root / "bad", ignore=shutil.ignore_patterns("encoder", "classifier"))
    (root / "bad" / "dev.tsv").write_text("good film\tpos\nbad film\tgen\n")
    (root / "ranking.tsv").write_text("anchor\tpositive\ngood film\tthe film\n")
    (root / "scored.tsv").write_text("sentence1\tsentence2\tscore\ngood film\tthe film\thigh\n")
    return root


@pytest.mark.parametrize(
    "tool,flags",
    [
        ("predict", ("--model_dir=ENCODER", "--model=text_classification", "--text=good")),
        (
            "run_classifier",
            (
                "--task_name=simple",
                "--data_dir=START",
                "--labels=neg,pos",
                "--init_checkpoint=ENCODER",
                "--max_seq_length=16",
                "--do_predict",
            ),
        ),
        (
            "run_squad",
            (
                "--predict_file=START/squad.json",
                "--init_checkpoint=ENCODER",
                "--do_predict",
                "--max_seq_length=16",
                "--max_query_length=4",
                "--doc_stride=4",
            ),
        ),
        (
            "run_ner",
            (
                "--data_dir=START",
                "--labels=O,B-X,I-X",
                "--init_checkpoint=ENCODER",
                "--max_seq_length=16",
                "--do_predict",
            ),
        ),
        (
            "run_swag",
            (
                "--data_dir=START",
                "--init_checkpoint=ENCODER",
                "--max_seq_length=16",
                "--do_predict",
            ),
        ),
        ("export_saved_model", ("--model_dir=ENCODER", "--model=text_classification")),
        ("quantize_model", ("--model_dir=ENCODER", "--model=text_classification")),
        ("compare_models", ("--task_name=simple", "--data_dir=START", "--model_dirs=ENCODER")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_head_at_random_answers_nothing(start, tmp_path, tool, flags):
    flags = [
        flag.replace("START", str(start)).replace("ENCODER", f"{start}/encoder") for flag in flags
    ]
    if tool == "export_saved_model":
        flags.append(f"--export_dir={tmp_path}/out")
    elif tool not in ("predict", "compare_models"):
        flags.append(f"--output_dir={tmp_path}/out")
    result = run(tool, *flags)
    assert result.returncode == 1, result.stderr
    assert "must be trained before" in result.stderr and "Traceback" not in result.stderr
    assert not list((tmp_path / "out").glob("*"))


@pytest.mark.parametrize(
    "tool,flags",
    [
        (
            "run_classifier",
            (
                "--task_name=simple",
                "--data_dir=START",
                "--init_checkpoint=CASED",
                "--max_seq_length=16",
                "--do_train",
                "--output_dir=OUT",
            ),
        ),
        (
            "extract_features",
            ("--input_file=START/dev.txt", "--init_checkpoint=CASED", "--output_file=OUT/features"),
        ),
        (
            "create_pretraining_data",
            (
                "--input_file=START/dev.txt",
                "--output_file=OUT/records",
                "--vocab_file=CASED/vocab.txt",
            ),
        ),
        (
            "run_classifier",
            (
                "--task_name=simple",
                "--data_dir=START",
                "--init_checkpoint=ENCODER",
                "--max_seq_length=16",
                "--do_train",
                "--output_dir=OUT",
                "--vocab_file=CASED/vocab.txt",
            ),
        ),
    ],
)
def test_a_cased_vocabulary_is_not_lowered_without_a_word(start, tmp_path, tool, flags):
    cased = tmp_path / "cased"
    shutil.copytree(start / "encoder", cased)
    words = (cased / "vocab.txt").read_text().replace("[unused0]", "Film")
    (cased / "vocab.txt").write_text(words)
    (cased / "tokenizer_config.json").unlink()
    (tmp_path / "out").mkdir()
    places = {"START": start, "CASED": cased, "OUT": tmp_path / "out", "ENCODER": cased}
    for name, path in places.items():
        flags = [flag.replace(name, str(path)) for flag in flags]
    result = run(tool, *flags)
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    assert "--do_lower_case=false" in result.stderr
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.parametrize("tool", ["run_classifier", "run_ner", "run_swag", "distill"])
def test_the_best_epoch_is_that_of_the_dev_file(start, tmp_path, tool):
    flags = ["--keep_best=accuracy", f"--output_dir={tmp_path}/out", f"--data_dir={start}"]
    flags += {"distill": ["--teacher=x", "--student=y", "--task_name=simple"]}.get(
        tool, ["--do_train", "--init_checkpoint=x"]
    )
    flags += ["--task_name=simple"] if tool == "run_classifier" else []
    result = run(tool, *flags)
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    message = "--keep_best must be a score of the dev file, whose name begins with val_"
    assert message in result.stderr


def refuse_weights():
    """Makes it an error to read the weights of a checkpoint."""
    from bert_tf.checkpoints import loading

    def refuse(*arguments, **options):
        raise AssertionError("the weights are read")

    loading.assign_weights = refuse


_BAD_DEV = "dev.tsv, line 2 must have a label of ['neg', 'pos']. Received: 'gen'"
_SIMPLE = ("--task_name=simple", "--data_dir=START/bad")


@pytest.mark.parametrize(
    "tool,flags,words",
    [
        (
            "run_classifier",
            (*_SIMPLE, "--init_checkpoint=START/encoder", "--do_train", "--output_dir=OUT"),
            _BAD_DEV,
        ),
        (
            "run_classifier",
            (*_SIMPLE, "--init_checkpoint=START/classifier", "--do_eval", "--output_dir=OUT"),
            _BAD_DEV,
        ),
        (
            "distill",
            (*_SIMPLE, "--teacher=START/classifier", "--num_hidden_layers=1", "--output_dir=OUT"),
            _BAD_DEV,
        ),
        ("compare_models", (*_SIMPLE, "--model_dirs=START/classifier"), _BAD_DEV),
        (
            "prune_heads",
            (*_SIMPLE, "--model_dir=START/classifier", "--prune_share=0.5", "--output_dir=OUT"),
            _BAD_DEV,
        ),
        (
            "run_ner",
            (
                *("--data_dir=START", "--labels=O,B-Y,I-Y", "--do_train", "--output_dir=OUT"),
                "--init_checkpoint=START/encoder",
            ),
            "--labels must have all tags of the training data. Received: none of ['B-X']",
        ),
        (
            "run_sentence_encoder",
            (
                *("--train_file=START/ranking.tsv", "--dev_file=START/scored.tsv"),
                *("--guide_dir=START/encoder", "--init_checkpoint=START/encoder"),
                *("--do_train", "--output_dir=OUT"),
            ),
            "scored.tsv, example 1 must have a score",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_bad_data_is_found_before_weights_are_read(start, tmp_path, tool, flags, words):
    places = {"START": str(start), "OUT": f"{tmp_path}/out"}
    for name, place in places.items():
        flags = [flag.replace(name, place) for flag in flags]
    result = run(tool, *flags, prepare=refuse_weights)
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr, result.stderr
