"""`python -m benchmarks` as a user starts it, on tiny models, and its workers. Nothing is timed."""

import dataclasses
import importlib.util
import json
import sys

import pytest
import tensorflow as tf

import bert_tf
from benchmarks import generation, gpu_training, latency, limits, models, report, workers, workloads
from benchmarks.peers import PEERS, Entry
from benchmarks.report import Options
from benchmarks.workloads import Workload
from bert_tf.errors import UserError
from bert_tf.ops import native
from tests.conftest import REPOSITORY
from tests.tools.running import run

KERAS_HUB = ("--peers=keras_hub", "--buckets=2,all")
ALONE = ("--peers=", "--workloads=2x16")


def small_matmuls():
    """Called in the process of the program: the speed does not matter, and large ones take long."""
    limits.MATMULS = ((64, 64, 64),)


@pytest.mark.full
@pytest.mark.parametrize(
    "job, flags, num_tables",
    [
        ("inference", ALONE, 1),
        ("inference", (*ALONE, "--dtype=bfloat16"), 1),
        ("inference", (*ALONE, "--variants=packed", "--config=ROOT/modernbert.json"), 1),
        ("inference", (*ALONE, "--dtype=int8"), 1),
        ("inference", (*KERAS_HUB, f"--baseline_dir={REPOSITORY}", "--workloads=ragged5"), 1),
        ("training", (*KERAS_HUB, "--workloads=2x16,ragged5"), 2),
        ("latency", ("--peers=", "--dtype=int8"), len(latency.SENTENCES)),
        ("encode", ("--peers=", "--dtype=int8"), 2),
        ("calls", ("--peers=",), 2),
        ("generation", (*ALONE, "--new_tokens=5"), len(generation.BEAMS) + 1),
        ("xla", ("--workloads=2x16",), 2),
        ("families", ("--workloads=2x16",), 1),
        ("choice", (), 2),
        ("pipeline", ("--workloads=4x16", "--stages=1,2", "--parts=1,2"), 2),
    ],
)
def test_a_tiny_run_has_no_problems(job, flags, num_tables, tmp_path):
    """The program itself compares the outputs of all peers."""
    config = {**models.CONFIGS["tiny"], "vocab_size": 30522}  # the tokenizer's
    (tmp_path / "config.json").write_text(json.dumps(config))
    modern = {"model_type": "modernbert", "hidden_size": 64, "num_attention_heads": 4}
    modern |= {"num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 99, "pad_token_id": 0}
    modern |= dict.fromkeys(("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id"), 1)
    (tmp_path / "modernbert.json").write_text(json.dumps(modern))
    output = tmp_path / "out.json"
    usual = ("--rounds=2", "--search_calls=1", "--turn_seconds=0", f"--json={output}")
    flags = (*usual, "--config=ROOT/config.json", *flags)
    flags = [flag.replace("ROOT", str(tmp_path)) for flag in flags]
    result = run("benchmarks", job, *flags, prepare=small_matmuls, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    content = json.loads(output.read_text())
    assert content["problems"] == [] and len(content["tables"]) == num_tables
    assert all(table["rows"] and all(table["rows"]) for table in content["tables"])


MISTAKES = [
    ([], "--job, or the first argument, must be one of"),
    (["training", "--dtype=int8"], "one of inference, latency, encode, matmul with --dtype="),
    (["xla", "--peers=pytorch"], "--peers must not be set with --job=xla"),
    (["pipeline", "--stages=13"], "--stages must be 1 to 12, the number of blocks"),
    (["pipeline", "--stages=two"], "--stages must be positive whole numbers"),
    (["latency", "--peers=", "--config=tiny"], "vocabulary of at least 30522"),
    (["ops", "--peers=", "--plot=out.jpg"], "must be a .png, .svg or .pdf"),
    (["ops", "--peers=", "--ops=gelu"], "--ops must be some of fused_bias_gelu"),
    (["generation", "--config=tiny", "--peers=", "--new_tokens=127"], "must be at most 126"),
    (["inference", "--peers=nobody"], "--peers must be some of"),
    (["inference", "--peers=zentf", "--peer_python=zentf"], "must be NAME=PATH"),
    (["inference", "--peers=zentf", "--peer_python=zentf=/bin/false"], "interpreter of an"),
    (["inference", "--peers=", "--baseline_dir=/"], "--baseline_dir must be a checkout"),
    (["memory", "--peers=", "--baseline_dir=/"], "--job must be one of inference"),
    (["inference", "--peers=", "--config=huge"], "--config must be one of"),
    (["inference", "--peers=", "--config=tiny,base"], "--config must be one model"),
    (["inference", "--peers=", "--workloads=8by128"], "--workloads must be"),
    (["inference", "--peers=", "--workloads=1x513"], "at most 512"),
    (["balance", "--materials_dir=/nowhere"], "-m research.fetch_materials"),
    (["inference", "--device=gpu"], "--job must be training"),
    (["training", "--peers=", "--peak_tflops=312"], "--device must be gpu with --peak_tflops"),
]


@pytest.mark.parametrize(
    "arguments, message",
    [
        pytest.param(*mistake, marks=pytest.mark.full if number % 5 else ())
        for number, mistake in enumerate(MISTAKES)
    ],
)
def test_mistakes_are_reported_before_any_work(arguments, message):
    result = run("benchmarks", *arguments)
    assert result.returncode == 1
    assert message in result.stderr and "Traceback" not in result.stderr


def test_every_peer_has_a_file():
    for entry in PEERS.values():
        assert importlib.util.find_spec(f"benchmarks.peers.{entry.path.partition(':')[0]}")


def test_a_missing_peer_is_named_with_its_package(monkeypatch):
    entry = Entry("absent:Absent", packages=("no_such_module",))
    monkeypatch.setitem(PEERS, "absent", entry)
    with pytest.raises(UserError, match="pip install no-such-module"):
        workers.require_installed(["absent"], "inference")
    entry = Entry("absent:Absent", job_packages={"inference_int8": ("no_such_module",)})
    monkeypatch.setitem(PEERS, "absent", entry)
    workers.require_installed(["absent"], "inference")
    with pytest.raises(UserError, match="pip install no-such-module"):
        workers.require_installed(["absent"], "inference_int8")


class TestInterpreters:
    """Peers in other environments."""

    @pytest.fixture
    def python(self, tmp_path):
        """This interpreter under another path; a call writes its environment to a file."""
        path = tmp_path / "bin" / "python"
        path.parent.mkdir()
        path.write_text(f'#!/bin/sh\nenv > {tmp_path}/called\nexec {sys.executable} "$@"\n')
        path.chmod(0o755)
        return str(path)

    @pytest.mark.parametrize("name", ["zentf", "zentorch"])
    def test_without_the_packages_it_says_how_to_make_the_environment(self, name, monkeypatch):
        monkeypatch.setitem(
            PEERS, name, dataclasses.replace(PEERS[name], packages=("no_such_module",))
        )
        with pytest.raises(UserError, match=f"python -m venv {name}_env.*install.* {name}==2"):
            workers.require_installed([name], "inference")

    def test_the_packages_are_looked_for_in_the_other_environment(self, python, tmp_path):
        entry = Entry("absent:Absent", packages=("json", "no_such_module"))
        assert entry.missing("inference", python) == ["no-such-module"]
        assert (tmp_path / "called").exists()
        if importlib.util.find_spec("zentf"):
            pytest.skip("needs an environment without zentf")
        with pytest.raises(UserError, match=f"no zentf for zentf in .*`{python} -m pip install"):
            workers.require_installed(["zentf"], "inference", {"zentf": python})

    def test_the_worker_runs_there(self, python, tmp_path, monkeypatch):
        """A process that has the variables of the peer."""
        pytest.importorskip("tokenizers", reason="needs tokenizers")
        entry = dataclasses.replace(PEERS["hf_tokenizers"], environment={"TF_ENABLE_X": "1"})
        monkeypatch.setitem(PEERS, "hf_tokenizers", entry)
        interpreters = workers.parse_interpreters([f"hf_tokenizers={python}"], ["hf_tokenizers"])
        workers.Worker("hf_tokenizers", "", 1, interpreters={"zentf": python}).close()
        assert not (tmp_path / "called").exists()
        workers.Worker("hf_tokenizers", "", 1, interpreters=interpreters).close()
        assert "TF_ENABLE_X=1" in (tmp_path / "called").read_text().splitlines()


class TestGpu:
    def test_without_a_gpu_it_says_so_before_any_work(self):
        if tf.config.list_physical_devices("GPU"):
            pytest.skip("needs a machine without a GPU")
        result = run("benchmarks", "training", "--device=gpu", "--peak_tflops=312")
        assert result.returncode == 1 and result.stdout == ""
        assert "must be a GPU that TensorFlow sees. Received: none" in result.stderr

    def test_an_unknown_gpu_needs_its_peak(self, monkeypatch):
        device = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [device])
        monkeypatch.setattr(
            tf.config.experimental, "get_device_details", lambda device: {"device_name": "GPU X"}
        )
        with pytest.raises(UserError, match="--peak_tflops.*Received: 'GPU X'"):
            gpu_training.require_gpu()
        assert gpu_training.require_gpu(100.0) == gpu_training.Gpu("GPU X", 1e14)

    @pytest.mark.full
    def test_the_rows_of_a_tiny_model(self):
        """What runs on a GPU, here on the CPU, in bfloat16, in processes of their own."""
        if native.library() is None:
            pytest.skip("needs the native ops")
        config = bert_tf.BertConfig(**models.CONFIGS["tiny"]).to_dict()

        def start(name, model_directory, environment):
            return workers.Worker(name, model_directory, 1, environment=environment)

        results = report.Report(Options(rounds=2, turn_seconds=0, search_calls=1))
        gpu_training.run(
            start,
            {"tiny": config},
            [Workload.dense(2, 16)],
            gpu_training.Gpu("no GPU", 1e12),
            results,
            steps=2,
        )
        assert results.problems == []
        (table,) = results.tables
        assert [row["ops"] for row in table.rows] == list(gpu_training.ARRANGEMENTS)
        flops = workloads.training_flops(Workload.dense(2, 16), config)
        for row in table.rows:
            step = row["ms per step"].median / 1e3
            assert row["examples/s"] == pytest.approx(2 / step)
            assert row["tokens/s"] == pytest.approx(32 / step)
            assert row["FLOPs utilisation"] == pytest.approx(flops / step / 1e12)
            assert row["peak MiB"] is None

    def test_a_row_that_fails_leaves_the_others(self):
        def start(name, model_directory, environment):
            raise workers.PeerFailed("out of memory")

        results = report.Report(Options(1, 0, 1))
        gpu_training.run(
            start,
            {"tiny": models.CONFIGS["tiny"]},
            [Workload.dense(2, 16)],
            gpu_training.Gpu("no GPU", 1e12),
            results,
            steps=1,
        )
        assert len(results.problems) == len(gpu_training.ARRANGEMENTS)
        assert "out of memory" in results.problems[0]
