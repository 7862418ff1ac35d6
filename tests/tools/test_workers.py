"""Programs that train: on one device, on two replicas, and on two workers, one of them killed."""

import dataclasses
import json
import pathlib
import time

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_tf import BertBackbone, BertTextClassifier, BertTokenizer
from bert_tf.base.supervision import PEER_GONE
from bert_tf.tasks.token_classification.files import conll_lines
from bert_tf.training.checkpointing.checkpoint_files import checkpoint_steps
from tests.tools import test_run_ner, test_run_squad, test_run_swag
from tests.tools.running import free_ports, run, start
from tests.tools.test_run_pretraining import BFLOAT16_SUMS, make_two_devices, require_bfloat16_sums

ROWS = [("good film", "1"), ("bad film", "0"), ("the good.", "1"), ("the film is bad.", "0")] * 16
PAIRS = [("a b c", "c b a"), ("x y", "y x"), ("k", "k"), ("a x k b", "b k x a")] * 16


@pytest.fixture(scope="module")
def files(tmp_path_factory, tiny_config, tiny_vocabulary):
    """The files of all programs; without dropout, which draws by the row's place on its device."""
    root = tmp_path_factory.mktemp("workers")
    keras.utils.set_random_seed(0)
    rates = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = dataclasses.replace(tiny_config, max_position_embeddings=128, **rates)
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    BertBackbone(config).save_pretrained(root / "checkpoint")
    tokenizer.save_pretrained(root / "checkpoint")
    teacher = BertTextClassifier(BertBackbone(config), labels=["0", "1"], tokenizer=tokenizer)
    teacher.save_pretrained(root / "teacher")

    def write(name, lines):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines))

    for split in ("train", "dev", "test"):
        write(f"rows/{split}.tsv", map("\t".join, ROWS))
        write(f"tags/{split}.txt", ["".join(conll_lines(test_run_ner.SENTENCES * 4))])
        write(f"texts/{split}.tsv", (a if split == "test" else f"{a}\t{b}" for a, b in PAIRS))
        write(f"swag/{split}.csv", [test_run_swag.HEADER, *test_run_swag.rows(64, 1)])
    write("swag/val.csv", [test_run_swag.HEADER, *test_run_swag.rows(64, 2)])
    write(
        "pairs.jsonl",
        (json.dumps({"sentence1": a, "sentence2": b, "score": 1.0}) for a, b in PAIRS),
    )
    test_run_squad.write_squad(root / "squad.json", 1, 64)
    return root


WINDOWS = "--max_seq_length=24 --doc_stride=8 --max_query_length=4 --version_2_with_negative"
RUNS = {
    "run_classifier": "--task_name=simple --data_dir=ROOT/rows --do_train --do_eval --do_predict",
    "run_ner": "--data_dir=ROOT/tags --do_train --do_eval --do_predict --use_crf",
    "run_squad": f"--train_file=ROOT/squad.json --predict_file=ROOT/squad.json {WINDOWS} "
    "--do_train --do_predict",
    "run_translation": "--data_dir=ROOT/texts --do_train --do_predict --average_checkpoints=2 "
    "--max_new_tokens=4",
    "run_swag": "--data_dir=ROOT/swag --do_train --do_eval --do_predict",
    "run_sentence_encoder": "--train_file=ROOT/pairs.jsonl --objective=cosine --do_train",
    "distill": "--task_name=simple --data_dir=ROOT/rows --num_hidden_layers=1 "
    "--teacher=ROOT/teacher --timing_rounds=1",
}
SHORT = ("--train_batch_size=8", "--num_train_epochs=5", "--save_checkpoints_steps=4")


def flags_of(program, root, output, *more):
    given = RUNS[program].replace("ROOT", str(root)).split()
    if program != "distill":
        given.append(f"--init_checkpoint={root}/checkpoint")
    return *given, f"--output_dir={output}", *SHORT, *more


def start_workers(program, flags, texts):
    """Two workers on the loopback."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    workers = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(task)}
        output = texts / f"worker{index}.txt"
        workers.append(start(program, *flags, output=output, environment=environment))
    return workers


def require_equal(one: pathlib.Path, other: pathlib.Path):
    """Requires the same files in two output directories, and nearly the same weights."""
    names = [sorted(p.name for p in path.iterdir() if p.suffix != ".png") for path in (one, other)]
    assert names[0] == names[1]
    expected, received = (load_file(path / "model/model.safetensors") for path in (one, other))
    assert expected.keys() == received.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(received[name], values, atol=1e-5, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize("program", RUNS)
def test_two_replicas_are_one_device(files, tmp_path, program):
    one, two = tmp_path / "one", tmp_path / "two"
    more = ("--gradient_accumulation_steps=2", "--l2_regularization=0.1")
    replicas = (*more, "--distribution_strategy=mirrored")
    for output, flags, prepare in ((one, more, None), (two, replicas, make_two_devices)):
        result = run(program, *flags_of(program, files, output, *flags), prepare=prepare)
        assert result.returncode == 0, result.stderr
    require_equal(one, two)


@pytest.mark.full
def test_fine_tuning_sums_gradients_in_bfloat16(files, tmp_path):
    flags = ("--distribution_strategy=mirrored", *BFLOAT16_SUMS)
    given = flags_of("run_classifier", files, tmp_path, *flags)
    result = run("run_classifier", *given, prepare=require_bfloat16_sums)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    "program", ["run_classifier", *(pytest.param(p, marks=pytest.mark.full) for p in [*RUNS][1:])]
)
def test_two_workers_are_one_process_also_after_a_kill(files, tmp_path, program):
    one, two = tmp_path / "one", tmp_path / "two"
    result = run(program, *flags_of(program, files, one))
    assert result.returncode == 0, result.stderr

    flags = flags_of(program, files, two, "--distribution_strategy=multi_worker_mirrored")
    workers = start_workers(program, flags, tmp_path)
    while not checkpoint_steps(two / "checkpoints"):
        assert workers[0].is_alive() and workers[1].is_alive(), workers[0].text()
        time.sleep(0.01)
    workers[1].kill()
    assert workers[0].wait(timeout=60) == PEER_GONE, workers[0].text()
    assert "this worker ends too" in workers[0].text() and "ckpt-" in workers[0].text()
    assert not (two / "model").exists()

    workers = start_workers(program, flags, tmp_path)
    for worker in workers:
        assert worker.wait() == 0, worker.text()
    assert "Resuming from" in workers[0].text()
    require_equal(one, two)


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--distribution_strategy=multi_worker_mirrored",), "no TF_CONFIG"),
        (("--distribution_strategy=parameter_server",), "ClusterCoordinator"),
        (("--distribution_strategy=tpu", "--tpu_name=none"), "must be an available TPU"),
        (
            ("--distribution_strategy=multi_worker_mirrored", "--do_train=false"),
            "must be used with --do_train: one process predicts",
        ),
    ],
)
def test_wrong_flags_are_refused(files, tmp_path, flags, message):
    result = run("run_ner", *flags_of("run_ner", files, tmp_path / "out", *flags))
    assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
    assert message in result.stderr
    assert not list((tmp_path / "out").glob("*"))
