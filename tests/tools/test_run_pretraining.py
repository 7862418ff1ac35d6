"""tools/run_pretraining.py, run as a user runs it, on a tiny model."""

import json
import random
import shutil
import signal
import socket
import subprocess
import time

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from bert_tf import BertBackbone, BertConfig, BertTokenizer
from bert_tf.base.supervision import PEER_GONE
from bert_tf.tasks.pretraining.chunk_examples import serialize_features
from bert_tf.training import AdamWeightDecay
from bert_tf.training.callbacks import read_json_lines
from bert_tf.training.checkpointing.checkpoint_files import checkpoint_steps
from tests.tools.running import free_ports, results_in, run, start

LENGTH, PLACES, RECORDS = 16, 3, 64
STEPS = 12


def write_records(path, seed, length=LENGTH):
    rng = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for _ in range(RECORDS):
            used = int(rng.integers(9, length + 1))
            ids = rng.integers(5, 64, length) * (np.arange(length) < used)
            masked = int(rng.integers(1, PLACES + 1))
            places = np.arange(PLACES)
            features = {
                "input_ids": ids.tolist(),
                "input_mask": (np.arange(length) < used).astype(int).tolist(),
                "segment_ids": [0] * length,
                "masked_lm_positions": np.where(places < masked, places + 1, 0).tolist(),
                "masked_lm_ids": rng.integers(5, 64, PLACES).tolist(),
                "masked_lm_weights": (places < masked).astype(float).tolist(),
                "next_sentence_labels": [int(rng.integers(2))],
            }
            writer.write(serialize_features(features))


@pytest.fixture(scope="module")
def start_files(tmp_path_factory):
    """A configuration and TFRecords."""
    root = tmp_path_factory.mktemp("pretraining")
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=LENGTH,
    )
    (root / "config.json").write_text(json.dumps(config.to_huggingface()))
    for seed, name in enumerate(("a", "b")):
        write_records(root / f"{name}.tfrecord", seed)
    write_records(root / "held_out.tfrecord", 9)
    text = "the good film\nthe bad film\nbad film\n\na good film\nthe bad\ngood\n\n"
    (root / "text.txt").write_text(text * 20)
    return root


def flags_for(root, output, *more):
    return (
        f"--input_file={root}/a.tfrecord,{root}/b.tfrecord",
        f"--bert_config_file={root}/config.json",
        f"--output_dir={output}",
        f"--max_seq_length={LENGTH}",
        f"--max_predictions_per_seq={PLACES}",
        "--train_batch_size=8",
        "--learning_rate=1e-2",
        f"--num_train_steps={STEPS}",
        "--num_warmup_steps=2",
        "--save_checkpoints_steps=4",
        "--log_steps=1",
        *more,
    )


def evaluating(root):
    return (
        "--do_train",
        "--do_eval",
        f"--eval_input_file={root}/held_out.tfrecord",
        "--keep_checkpoint_max=1",
        "--max_eval_steps=3",
        "--histogram_rows=2",
    )


@pytest.fixture(scope="module")
def trained(start_files):
    """The output directory of one unbroken run, and what it printed."""
    output = start_files / "out"
    result = run("run_pretraining", *flags_for(start_files, output, *evaluating(start_files)))
    assert result.returncode == 0, result.stderr
    return output, result.stdout + result.stderr


def scalars(directory):
    """The last value of every scalar in TensorBoard's files."""
    values = logged(directory).items()
    return {name: float(array) for name, (_, array) in values if not array.shape}


def logged(directory):
    """The steps and the last value of everything in TensorBoard's files."""
    values = {}
    for path in sorted(directory.glob("events.*")):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                steps, _ = values.get(value.tag, ([], None))
                values[value.tag] = [*steps, event.step], tf.make_ndarray(value.tensor)
    return values


LOGGED = {
    "loss",
    "masked_lm_loss",
    "masked_lm_accuracy",
    "next_sentence_loss",
    "next_sentence_accuracy",
    "learning_rate",
    "gradient_norm",
    "examples_per_second",
    "tokens_per_second",
    "padding_share",
}


def test_writes_model_results_and_logs(trained, start_files):
    output, text = trained
    assert f"{STEPS}/{STEPS}" in text and "step/s" in text
    lines = read_json_lines(output / "log.jsonl")
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == list(range(1, STEPS + 1))
    assert set(training[-1]) >= LOGGED
    assert training[1]["learning_rate"] == pytest.approx(1e-2 * (1 - 2 / STEPS))
    assert [line["step"] for line in lines if "val_loss" in line] == [4, 8, 12]
    assert LOGGED | {"val_loss"} <= set(scalars(output / "tensorboard"))
    histograms = {n: v for n, v in logged(output / "tensorboard").items() if v[1].shape}
    assert {"attention/layer_00", "hidden_states/embeddings"} <= set(histograms)
    assert all(v[0] == [0, 4, 8, 12] and v[1].shape == (30, 3) for v in histograms.values())

    results = results_in(output / "eval_results.txt")
    assert results["global_step"] == str(STEPS)
    assert {"loss", "masked_lm_accuracy", "next_sentence_loss"} <= set(results)
    best = json.loads((output / "checkpoints" / "best.json").read_text())["step"]
    assert checkpoint_steps(output / "checkpoints") == sorted({best, STEPS})
    backbone = BertBackbone.from_pretrained(output / "model")
    assert np.isfinite(backbone({"token_ids": tf.constant([[5, 6, 7]])})["pooled_output"]).all()


def test_killed_and_started_again_is_the_unbroken_run(trained, start_files, tmp_path):
    output = tmp_path / "out"
    flags = flags_for(start_files, output, *evaluating(start_files))
    log = output / "log.jsonl"
    process = start("run_pretraining", *flags, output=tmp_path / "text")
    moment = random.Random(3).randrange(1, STEPS - 1)
    while not log.exists() or len(read_json_lines(log)) < moment:
        assert process.is_alive(), process.text()
        time.sleep(0.005)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    result = run("run_pretraining", *flags)
    assert result.returncode == 0, result.stderr
    expected, received = (
        load_file(path / "model" / "model.safetensors") for path in (trained[0], output)
    )
    assert expected.keys() == received.keys()
    for name in expected:
        np.testing.assert_array_equal(received[name], expected[name])
    results = [(path / "eval_results.txt").read_text() for path in (trained[0], output)]
    assert results[0] == results[1]
    # And once more: there is nothing left, and it says so.
    result = run("run_pretraining", *flags)
    text = result.stdout + result.stderr
    assert result.returncode == 0
    assert f"--num_train_steps={STEPS} is already reached" in text and "step/s" not in text


@pytest.mark.parametrize(
    "flags,words",
    [
        ((), "At least one of --do_train and --do_eval"),
        (("--do_train", "--num_warmup_steps=13"), "--num_warmup_steps must be at most"),
        (("--do_train", "--input_file=absent*"), "must match at least one file. Received: absent*"),
        (("--do_train", "--input_file=ROOT/text.txt"), "text.txt must be a TFRecord file"),
        (("--do_train", "--whole_word_mask"), "must not be set with TFRecord files"),
        (("--do_train", "--bert_config_file=absent"), "absent must be a BERT configuration"),
        (("--do_train", "--max_seq_length=17"), "must be at most 16"),
        (("--do_train", "--gradient_accumulation_steps=3"), "must be a multiple"),
        (("--do_train", "--pipeline_stages=2"), "must be at most 1, the number of blocks"),
        (("--do_train", "--output_dir=/dev/null/out"), "/dev/null/out must be a directory"),
        (("--do_train", "--distribution_strategy=parameter_server"), "ClusterCoordinator"),
        (("--do_train", "--distribution_strategy=multi_worker_mirrored"), "no TF_CONFIG"),
        (("--do_train", "--use_tpu"), "`tpu` must be an available TPU"),
        (("--do_train", "--use_tpu", "--tpu_name=absent"), "`tpu` must be an available TPU"),
        (("--do_eval",), "--do_eval must have a trained model"),
        (("--do_train", "--max_seq_length=12"), "max_seq_length=12"),
    ],
)
def test_wrong_flags_are_refused_before_any_work(start_files, tmp_path, flags, words):
    flags = [flag.replace("ROOT", str(start_files)) for flag in flags]
    result = run("run_pretraining", *flags_for(start_files, tmp_path / "out", *flags))
    assert result.returncode == 1
    assert words in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_numbers_need_their_token(start_files, tiny_vocabulary, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(tiny_vocabulary))
    flags = (f"--input_file={start_files}/text.txt", f"--vocab_file={tmp_path}/vocab.txt")
    flags = flags_for(start_files, tmp_path / "out", "--do_train", "--replace_numbers", *flags)
    result = run("run_pretraining", *flags)
    assert result.returncode == 1 and "Traceback" not in result.stderr
    assert "--vocab_file must have the piece #NUM# that numbers become" in result.stderr
    assert "--number_token=[unused0]" in result.stderr and "--special_tokens" in result.stderr


@pytest.mark.full
def test_raw_text(start_files, tiny_vocabulary, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(tiny_vocabulary))
    flags = flags_for(
        start_files,
        tmp_path / "out",
        "--do_train",
        f"--input_file={start_files}/text.txt",
        f"--vocab_file={tmp_path}/vocab.txt",
        "--objective=mlm_sop",
        "--whole_word_mask",
        "--optimizer=lamb",
        "--mixed_precision=bfloat16",
        "--gradient_accumulation_steps=2",
        "--number_token=[unused0]",
    )
    result = run("run_pretraining", *flags)
    assert result.returncode == 0, result.stderr
    lines = read_json_lines(tmp_path / "out" / "log.jsonl")
    assert len(lines) == STEPS and set(lines[-1]) >= LOGGED
    # The model is fine-tuned on the text that it was trained on.
    tokenizer = BertTokenizer.from_pretrained(str(tmp_path / "out" / "model"))
    assert tokenizer.pieces(["good 12."]).to_list() == [[b"good", b"[unused0]", b"."]]


def make_two_devices():
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)


BFLOAT16_SUMS = ("--all_reduce_dtype=bfloat16", "--all_reduce_bytes_per_pack=4096")


def require_bfloat16_sums():
    """Makes two devices; an optimizer without the values of `BFLOAT16_SUMS` fails."""
    make_two_devices()
    build = AdamWeightDecay.build

    def checked_build(self, variables):
        assert (self.all_reduce_dtype, self.all_reduce_bytes_per_pack) == ("bfloat16", 4096)
        build(self, variables)

    AdamWeightDecay.build = checked_build


@pytest.mark.full
@pytest.mark.parametrize(
    "flags",
    [
        [
            "--objective=mlm",
            "--lr_schedule=cosine_restarts",
            "--lr_cycles=2",
            "--mixed_precision=float16",
        ],
        ["--objective=ltr", "--lr_schedule=noam", "--layer_decay=0.9"],
        ["--gradient_checkpointing", "--gradient_accumulation_steps=4"],
        ["--jit_compile"],
        ["--pack_rows", "--masking=span"],
        ["--distribution_strategy=mirrored", *BFLOAT16_SUMS],
    ],
    ids=lambda flags: flags[0],
)
def test_every_other_way_to_train(start_files, tiny_vocabulary, tmp_path, flags):
    (tmp_path / "vocab.txt").write_text("\n".join(tiny_vocabulary))
    if "--pack_rows" in flags:
        texts, vocabulary = f"{start_files}/text.txt", f"{tmp_path}/vocab.txt"
        flags = [*flags, f"--input_file={texts}", f"--vocab_file={vocabulary}"]
    result = run(
        "run_pretraining",
        *flags_for(start_files, tmp_path / "out", "--do_train", *flags),
        prepare=require_bfloat16_sums if "--distribution_strategy=mirrored" in flags else None,
    )
    assert result.returncode == 0, result.stderr
    lines = read_json_lines(tmp_path / "out" / "log.jsonl")
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    first, last = lines[0]["masked_lm_loss"], lines[-1]["masked_lm_loss"]
    assert np.isfinite(last) and last < first + 0.5
    assert (tmp_path / "out" / "model" / "config.json").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"bert_tf_config": {"norm_first": True, "position_embedding_type": "rotary"}},
        pytest.param(
            {"model_type": "roberta", "pad_token_id": 0, "max_position_embeddings": LENGTH + 1},
            marks=pytest.mark.full,
        ),
    ],
    ids=["own switches", "no class of transformers"],
)
def test_what_only_our_format_holds_is_saved(start_files, tmp_path, changes):
    """It was refused after the last step."""
    sizes = json.loads((start_files / "config.json").read_text())
    google = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")
    google += ("intermediate_size", "max_position_embeddings", "type_vocab_size")
    config = {**{name: sizes[name] for name in google}, **changes}
    (tmp_path / "network.json").write_text(json.dumps(config))
    flags = (f"--bert_config_file={tmp_path}/network.json", "--num_train_steps=3", "--do_train")
    result = run("run_pretraining", *flags_for(start_files, tmp_path / "out", *flags))
    assert result.returncode == 0, result.stderr
    opened = BertBackbone.from_pretrained(tmp_path / "out" / "model")
    assert (tmp_path / "out/model/bert_tf.json").exists()
    assert opened.config.norm_first == ("bert_tf_config" in changes)


@pytest.mark.full
def test_pipeline_stages_are_one_device_and_go_on_without_it(start_files, tmp_path):
    config = json.loads((start_files / "config.json").read_text()) | {"num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    common = (
        "--do_train",
        f"--bert_config_file={tmp_path}/config.json",
        "--gradient_accumulation_steps=4",
    )

    def trained(name, *flags):
        output = tmp_path / name
        result = run("run_pretraining", *flags_for(start_files, output, *common, *flags))
        assert result.returncode == 0, result.stderr
        return load_file(output / "model" / "model.safetensors"), result.stdout + result.stderr

    expected, _ = trained("one")
    received, _ = trained("two", "--pipeline_stages=2")
    # Resumed in the middle on one device: pipeline stages are no setting of the run.
    for step in (8, 12):
        shutil.rmtree(tmp_path / "two" / "checkpoints" / f"ckpt-{step}")
    resumed, text = trained("two")
    assert "Resuming from" in text and "differs from an uninterrupted one" not in text
    assert received.keys() == expected.keys()
    for name in expected:
        np.testing.assert_array_equal(received[name], expected[name])
        np.testing.assert_array_equal(resumed[name], expected[name])

    flags = ("--pipeline_stages=2", "--distribution_strategy=mirrored")
    result = run("run_pretraining", *flags_for(start_files, tmp_path / "out", *common, *flags))
    assert result.returncode == 1 and "neither replicated nor compiled" in result.stderr


@pytest.mark.full
def test_full_disk_keeps_the_checkpoint_before_and_goes_on_after(trained, start_files, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=420k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small disk")
    try:
        flags = flags_for(
            start_files, small / "out", *evaluating(start_files), "--keep_checkpoint_max=5"
        )
        result = run("run_pretraining", *flags)
        assert result.returncode == 1 and "Traceback" not in result.stderr, result.stderr
        assert "No space left" in result.stderr, result.stderr
        steps = checkpoint_steps(small / "out" / "checkpoints")
        assert steps and steps[-1] < STEPS
        roomier = ["mount", "-o", "remount,size=64m", str(small)]
        subprocess.run(roomier, check=True)
        result = run("run_pretraining", *flags)
        assert result.returncode == 0, result.stderr
        np.testing.assert_equal(
            load_file(small / "out" / "model" / "model.safetensors"),
            load_file(trained[0] / "model" / "model.safetensors"),
        )
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_port_in_use_is_worth_another_start(start_files, tmp_path):
    flags = ("--do_train", "--distribution_strategy=multi_worker_mirrored")
    with socket.create_server(("", 0)) as busy:
        address = f"localhost:{busy.getsockname()[1]}"
        cluster = {"worker": [address, "localhost:1"]}
        task = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
        result = run(
            "run_pretraining",
            *flags_for(start_files, tmp_path / "out", *flags),
            environment={"TF_CONFIG": json.dumps(task)},
        )
    assert result.returncode == PEER_GONE and "Traceback" not in result.stderr, result.stderr
    assert f"in `TF_CONFIG` must be free. Received: {address}" in result.stderr


def start_workers(root, output, texts, *more):
    """Two workers on the loopback."""
    addresses = [f"localhost:{port}" for port in free_ports(2)]
    flags = flags_for(
        root, output, "--do_train", "--distribution_strategy=multi_worker_mirrored", *more
    )
    workers = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        environment = {"TF_CONFIG": json.dumps(task)}
        output = texts / f"worker{index}.txt"
        workers.append(start("run_pretraining", *flags, output=output, environment=environment))
    return workers


@pytest.mark.full
def test_two_workers_are_one_process_and_leave_when_one_dies(start_files, tmp_path):
    # Dropout draws by the row's place on its device, so the comparison goes without it.
    config = json.loads((start_files / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = (f"--bert_config_file={tmp_path}/config.json", "--num_train_steps=14")
    one, two = tmp_path / "one", tmp_path / "two"
    result = run("run_pretraining", *flags_for(start_files, one, "--do_train", *flags))
    assert result.returncode == 0, result.stderr

    log = two / "log.jsonl"
    workers = start_workers(start_files, two, tmp_path, *flags)
    while not log.exists() or len(read_json_lines(log)) < 5:
        assert workers[0].is_alive() and workers[1].is_alive(), workers[0].text()
        time.sleep(0.01)
    workers[1].kill()
    killed = time.monotonic()
    print(f"worker 1 killed after step {len(read_json_lines(log))}")
    assert workers[0].wait(timeout=60) == PEER_GONE
    print(f"the other worker left after {time.monotonic() - killed:.1f} s")
    assert "this worker ends too" in workers[0].text() and "ckpt-" in workers[0].text()

    workers = start_workers(start_files, two, tmp_path, *flags)
    for worker in workers:
        assert worker.wait() == 0, worker.text()
    assert "Resuming from" in workers[0].text()
    losses = [
        [line["masked_lm_loss"] for line in read_json_lines(path / "log.jsonl")]
        for path in (one, two)
    ]
    assert len(losses[1]) == 14
    np.testing.assert_allclose(losses[1], losses[0], atol=1e-5)
