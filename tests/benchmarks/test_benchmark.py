"""The benchmark's arithmetic and inputs, and a tiny run as a user starts it. Nothing is timed."""

import dataclasses
import importlib.util
import json
import sys

import numpy as np
import pytest

from benchmarks import (
    balance,
    contest,
    families,
    generation,
    gpu_training,
    latency,
    models,
    ops,
    pipeline,
    report,
    timing,
    workers,
    workloads,
)
from benchmarks.peers import PEERS, XLA_VARIANTS, Entry, of_job
from benchmarks.report import Options
from benchmarks.timing import Spread
from benchmarks.turns import Turns, largest_difference, relative_error
from benchmarks.workloads import Workload
from tests.benchmarks.forked_workers import fork_workers
from tests.conftest import REPOSITORY
from tests.tools.running import run


class TestTiming:
    def test_everybody_is_asked_once_a_round_in_turning_order(self):
        asked = []

        def contestant(name):
            def measure():
                asked.append(name)
                return float(len(asked))

            return measure

        seconds = timing.interleave({name: contestant(name) for name in "ABC"}, rounds=3)
        assert "".join(asked) == "ABCBCACAB"
        assert seconds == {"A": [1, 6, 8], "B": [2, 4, 9], "C": [3, 5, 7]}

    def test_ratio_is_taken_inside_each_round(self):
        # The machine got ten times slower in the last round: the ratio does not care.
        assert timing.ratio([2.0, 3.0, 20.0], [1.0, 1.0, 10.0]) == Spread(2.0, 2.0, 3.0)

    def test_ratio_needs_the_same_rounds(self):
        with pytest.raises(ValueError, match="longer"):
            timing.ratio([1.0], [1.0, 2.0])

    def test_short_calls_fill_a_turn(self):
        assert timing.calls_in_a_turn(0.01, turn_seconds=0.5) == 50
        assert timing.calls_in_a_turn(5.0, turn_seconds=0.5) == 1
        assert timing.calls_in_a_turn(0.0, turn_seconds=0.5, most=200) == 200


class FakeWorker:
    """A worker whose only task gives `value`, and takes as many seconds; None: it fails."""

    def __init__(self, value):
        self.value = value
        self.tasks = []

    def variants(self, job):
        return ["default"]

    def make(self, job, variant):
        if self.value is None:
            raise workers.PeerFailed("it broke")
        self.tasks.append(job)
        return job

    def outputs(self, key):
        return {"x": np.array([1.0]), "y": np.array([self.value])}

    def warm_up(self, key, calls):
        pass

    def turn(self, key, turn_seconds):
        return self.value

    def drop(self, key):
        self.tasks.remove(key)


class TestTurns:
    def run(self, **values):
        peers = {name: FakeWorker(value) for name, value in values.items()}
        results, seconds = report.Report(Options(2, 0.0, 1)), None
        with Turns("a table", results) as turns:
            turns.add_all(peers, "job", calls=1)
            seconds = turns.seconds(limit=lambda: 3.0)
        assert not any(peer.tasks for peer in peers.values())
        return seconds, results.problems

    def test_peers_that_fail_or_differ_are_problems_and_not_timed(self):
        seconds, problems = self.run(broken=None, wrong=2.0, right=1.0001, bert_tf=1.0)
        assert seconds == {"bert_tf": [1.0] * 2, "right": [1.0001] * 2, "limit": [3.0] * 2}
        assert problems == ["a table: it broke", "a table, wrong: off by 1"]

    @pytest.mark.parametrize(
        "difference", [largest_difference, relative_error, ops.relative_difference]
    )
    def test_a_peer_that_returns_nan_is_off(self, difference):
        outputs = {"x": np.zeros(2), "y": np.array([0.0, np.nan])}
        expected = {"x": np.zeros(2), "y": np.zeros(2)}
        assert np.isnan(difference(expected, outputs))

    def test_the_outputs_of_a_contest_too(self):
        outputs = {"x": np.zeros(2), "y": np.array([0.0, np.nan])}
        expected = {"x": np.ones(2), "y": np.ones(2)}
        of_contest = contest.Contest("inference", None, {}, {}, None, expected)
        assert np.isnan(of_contest.difference(outputs)).all()

    def test_errors_are_relative_to_expected_outputs(self):
        results = report.Report(Options(1, 0.0, 1))
        expected = {"x": np.array([4.0]), "y": np.array([1.0])}
        with Turns("a table", results, expected) as turns:
            peers = {"bert_tf": FakeWorker(1.0), "other": FakeWorker(2.0)}
            turns.add_all(peers, "job", calls=1, difference=relative_error, most=0.8)
        assert turns.differences == {"bert_tf": 0.75, "other": 1.0}
        assert results.problems == ["a table, other: off by 1"]

    def test_without_bert_tf_there_is_no_table(self):
        assert self.run(right=1.0, bert_tf=None) == (None, ["a table: it broke"])


class TestWorkloads:
    def test_ragged_lengths_are_reproducible_and_bounded(self):
        workload = Workload.ragged()
        assert workload == Workload.ragged()
        assert len(workload.lengths) == 64
        assert min(workload.lengths) >= 8 and max(workload.lengths) <= 128
        assert 25 < workload.tokens / 64 < 35

    @pytest.mark.parametrize("bucket", [None, 4, 5, 64])
    def test_every_arrangement_holds_the_same_tokens(self, bucket):
        workload = Workload.ragged(9, longest=20)
        batches = workloads.batches(workload, bucket, vocab_size=50)
        outputs = {}
        for index, batch in enumerate(batches):
            outputs[f"{index}/sequence_output"] = batch["token_ids"][:, :, np.newaxis]
            outputs[f"{index}/pooled_output"] = batch["token_ids"][:, :1]
        found = workloads.comparable(outputs, workload, bucket)
        (whole,) = workloads.batches(workload, None, vocab_size=50)
        expected = whole["token_ids"][whole["padding_mask"]]
        np.testing.assert_array_equal(found["sequence_output"][:, 0], expected)
        np.testing.assert_array_equal(found["pooled_output"], whole["token_ids"][:, :1])

    def test_buckets_pad_less(self):
        workload = Workload.ragged()

        def positions(bucket):
            batches = workloads.batches(workload, bucket, vocab_size=50)
            return sum(batch["token_ids"].size for batch in batches)

        assert workload.tokens <= positions(4) < positions(16) < positions(None)

    def test_masks_of_all_batches_add_up(self):
        workload = Workload.ragged(10)
        batches = workloads.batches(workload, 4, vocab_size=50, training=True)
        weights = sum(batch["masked_weights"].sum() for batch in batches)
        assert weights == batches[0]["weight_total"] > 0
        for batch in batches:
            used = batch["masked_weights"] > 0
            rows = np.nonzero(used)[0]
            assert batch["padding_mask"][rows, batch["masked_positions"][used]].all()

    def test_a_dense_batch_of_128_predicts_20_a_sequence(self):
        (batch,) = workloads.batches(Workload.dense(2, 128), None, 50, training=True)
        assert batch["masked_weights"].sum() == 40

    def test_flops_of_bert_base(self):
        config = dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12)
        # 85 M weights, two operations each, on 128 tokens, and the attention's share.
        flops = workloads.encoder_flops(Workload.dense(1, 128), config)
        assert flops == pytest.approx(2 * 85e6 * 128, rel=0.05)


class TestBalance:
    """Steps of 4 replicas with 16 rows each, and of about as many tokens."""

    LENGTHS = np.clip(np.random.default_rng(0).lognormal(3.0, 0.6, 300), 3, 128).astype(np.int64)

    @pytest.mark.parametrize("by_tokens", [False, True])
    def test_dealing_makes_no_step_worse(self, by_tokens):
        row = balance.imbalance(self.LENGTHS, 4, 16, by_tokens, steps=12)
        assert 1 <= row["mean after"] <= row["mean before"]
        assert row["95 % after"] <= row["95 % before"]
        assert row["within ±5 % after"] >= row["within ±5 % before"]
        if not by_tokens:
            assert row["within ±5 % after"] == 1 and row["mean before"] > 1.05

    def test_equal_rows_are_balanced_before(self):
        row = balance.imbalance(np.full(64, 7), 2, 8, by_tokens=False, steps=5)
        assert all(value == 1 for value in row.values())


class TestReport:
    def test_table_shows_spreads_and_gaps(self):
        table = report.Table(
            "A title",
            [
                {"peer": "bert_tf", "ms": 1234.5, "ratio": Spread(1.0, 1.0, 1.0)},
                {"peer": "other", "ms": 0.01234, "ratio": None},
            ],
        )
        assert report.format_table(table).splitlines() == [
            "A title",
            "",
            "| peer    |    ms |            ratio |",
            "|---------|------:|-----------------:|",
            "| bert_tf | 1,234 | 1.00 (1.00–1.00) |",
            "| other   | 0.012 |                – |",
        ]

    def test_json_holds_unrounded_values_and_problems(self, tmp_path):
        results = report.Report(Options(2, 0.0, 1))
        results.add(report.Table("T", [{"ratio": Spread(0.1, 1 / 3, 0.5)}]))
        results.problem("one is missing")
        report.write_json(results, tmp_path / "out.json")
        content = json.loads((tmp_path / "out.json").read_text())
        assert content["problems"] == ["one is missing"]
        assert content["tables"][0]["rows"][0]["ratio"]["median"] == 1 / 3


def test_jobs_and_peers():
    assert of_job("inference") == [
        "keras_hub",
        "tensorflow",
        "pytorch",
        "torch_compile",
        "onnxruntime",
        "openvino",
        "ctranslate2",
        "zentf",
        "zentorch",
    ]
    # On a CPU, neither of the others multiplies in bfloat16.
    assert set(of_job("inference")) - set(of_job("inference_bfloat16")) == {
        "onnxruntime",
        "ctranslate2",
    }
    assert of_job("inference_int8") == of_job("latency_int8") == ["onnxruntime", "openvino"]
    assert of_job("training") == ["keras_hub", "pytorch", "torch_compile"]
    for entry in PEERS.values():
        assert (
            REPOSITORY / "benchmarks" / "peers" / f"{entry.path.partition(':')[0]}.py"
        ).is_file()


def tiny_run(tmp_path, job, *flags):
    """Runs a job once on a tiny model; returns the content of its JSON file."""
    usual = ("--config=tiny", "--rounds=1", "--search_calls=1", "--turn_seconds=0")
    output = f"--json={tmp_path}/out.json"
    result = run("benchmarks", job, *usual, output, *flags, prepare=fork_workers)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads((tmp_path / "out.json").read_text())


@pytest.mark.parametrize(
    "job, workload_names",
    [
        ("inference", "ragged5"),
        pytest.param("inference", "2x16,ragged5", marks=pytest.mark.full),
        pytest.param("training", "ragged5", marks=pytest.mark.full),
    ],
)
def test_a_tiny_run_compares_and_reports(job, workload_names, tmp_path):
    content = tiny_run(
        tmp_path,
        job,
        "--peers=keras_hub",
        f"--baseline_dir={REPOSITORY}",
        f"--workloads={workload_names}",
        "--rounds=2",
        "--buckets=2,all",
    )
    assert content["problems"] == []
    assert len(content["tables"]) == len(workload_names.split(","))
    for table in content["tables"]:
        assert {row["peer"] for row in table["rows"]} == {"bert_tf", "baseline", "keras_hub"}
        assert all(row["ms"] > 0 for row in table["rows"])
        assert all(row["largest difference"] < 1e-3 for row in table["rows"])


@pytest.mark.parametrize(
    "dtype, peers", [("bfloat16", "tensorflow"), pytest.param("int8", "", marks=pytest.mark.full)]
)
def test_a_tiny_run_in_another_dtype_tells_the_errors(dtype, peers, tmp_path, is_full):
    workload_names = "2x16,ragged5" if is_full else "2x16"
    tables = tiny_run(
        tmp_path,
        "inference",
        f"--dtype={dtype}",
        f"--peers={peers}",
        f"--workloads={workload_names}",
        "--buckets=2,all",
    )["tables"]
    assert len(tables) == len(workload_names.split(","))
    for table in tables:
        assert f"Inference in {dtype}" in table["title"]
        assert {row["peer"] for row in table["rows"]} == {"bert_tf", peers} - {""}
        for row in table["rows"]:
            assert 1e-5 < row["relative error"] < 0.1  # not float32, and near it
            assert dtype != "bfloat16" or "bfloat16, " in row["arrangement"]


def tiny_sentence_run(tmp_path, job):
    config = {**models.CONFIGS["tiny"], "vocab_size": 30522}  # the tokenizer's
    (tmp_path / "config.json").write_text(json.dumps(config))
    flags = "--dtype=int8", "--peers=", f"--config={tmp_path}/config.json"
    return tiny_run(tmp_path, job, *flags)["tables"]


@pytest.mark.full
def test_a_tiny_run_of_one_sentence_in_int8_tells_the_error(tmp_path):
    tables = tiny_sentence_run(tmp_path, "latency")
    assert len(tables) == len(latency.SENTENCES)
    for table in tables:
        peers = {row["peer"] for row in table["rows"]}
        assert peers == {"bert_tf, constants", "bert_tf, constants, static", "bert_tf, SavedModel"}
        assert all(0.0001 < row["relative error"] < 0.1 for row in table["rows"])


@pytest.mark.full
def test_a_tiny_run_of_many_sentences_is_in_both_dtypes(tmp_path):
    in_float32, in_int8 = tiny_sentence_run(tmp_path, "encode")
    assert "float32" in in_float32["title"] and "int8" in in_int8["title"]
    (row,) = in_float32["rows"]
    assert row["peer"] == "bert_tf, packed" and row["difference"] == 0
    (row,) = in_int8["rows"]
    assert row["peer"] == "bert_tf, int8" and 0.0001 < row["difference"] < 0.1
    assert row["texts/s"] > 0


@pytest.mark.full
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.full)])
def test_a_tiny_run_of_generation_compares_the_ids(dtype, tmp_path, is_full):
    peers = "pytorch" if is_full else ""
    tables = tiny_run(
        tmp_path,
        "generation",
        f"--dtype={dtype}",
        f"--peers={peers}",
        "--workloads=2x9",
        "--new_tokens=5",
    )["tables"]
    decodings, per_token = tables[: len(generation.BEAMS)], tables[len(generation.BEAMS) :]
    for table in decodings:
        named = {row["peer"].partition(",")[0] for row in table["rows"]}
        assert named == {"bert_tf", peers} - {""}
        assert all(row["different ids"] <= (dtype != "float32") * 0.9 for row in table["rows"])
    lengths = [
        (row["longest target"], row["new tokens"]) for table in per_token for row in table["rows"]
    ]
    assert lengths == ([(10, 5), (127, 5), (127, 20)] if dtype == "float32" else [])


@pytest.mark.full
def test_a_tiny_run_under_xla(tmp_path):
    content = tiny_run(tmp_path, "xla", "--workloads=2x16", "--rounds=2")
    assert [table["title"].split(",")[1] for table in content["tables"]] == [
        " inference",
        " training",
    ]
    for table in content["tables"]:
        assert [row["arrangement"] for row in table["rows"]] == list(XLA_VARIANTS)
        assert all(row["ms"] > 0 for row in table["rows"])


@pytest.mark.full
def test_a_tiny_run_of_families(tmp_path):
    (table,) = tiny_run(tmp_path, "families", "--workloads=2x16", "--rounds=2")["tables"]
    rows = {row["family"]: row for row in table["rows"]}
    assert list(rows) == ["bert", *families.SWITCHES]
    config = models.CONFIGS["tiny"]
    hidden, width = config["hidden_size"], config["intermediate_size"]
    block = 32 * (4 * hidden**2 + 2 * hidden * width) + 2 * 2 * hidden * 16**2
    for family, blocks, projected in (("bert", 2, 0), ("distilbert", 1, 0), ("albert", 2, 128)):
        expected = blocks * block + 2 * hidden**2 + 32 * projected * hidden
        assert rows[family]["multiply-adds"] == pytest.approx(expected / 1e9)
    assert all(row["gradient, ms"] > 0 < row["inference, ms"] for row in rows.values())


@pytest.mark.full
def test_a_tiny_run_of_pipeline_stages(tmp_path):
    flags = ("--workloads=4x16", "--stages=1,2", "--parts=1,2")
    memory, steps = tiny_run(tmp_path, "pipeline", *flags)["tables"]
    assert [(row["stages"], row["device"]) for row in memory["rows"]] == [(1, 0), (2, 0), (2, 1)]
    one, *two = memory["rows"]
    for name in ("weights MiB", "gradients MiB"):
        assert sum(row[name] for row in two) == pytest.approx(one[name]) and one[name] > 0
    assert [row["parts kept"] for row in two] == [2, 1]
    assert [(row["parts"], row["stages"]) for row in steps["rows"]] == [
        (1, 1),
        (1, 2),
        (2, 1),
        (2, 2),
    ]
    for row in steps["rows"]:
        assert row["ms"] > 0
        if row["stages"] == 2:
            assert 0 < row["idle %"]["median"] < 100 and 0 < row["simulated %"]["median"] < 100


class TestPipeline:
    @pytest.mark.parametrize("stages", [1, 2, 4])
    @pytest.mark.parametrize("parts", [1, 2, 8])
    def test_equal_stages_are_idle_as_the_formula_says(self, stages, parts):
        idle = pipeline.simulated_idle_share([1.0] * stages, [2.0] * stages, parts)
        assert idle == pytest.approx((stages - 1) / (parts + stages - 1))

    def test_a_slow_stage_keeps_the_others_waiting(self):
        # Stage 1 works from 1 to 13: it is idle while stage 0 has the first and the last part.
        idle = pipeline.simulated_idle_share([1.0, 2.0], [1.0, 4.0], 2)
        assert idle == pytest.approx(1 - 16 / (2 * 14))

    def test_overlapping_operations_count_once(self):
        profile = {
            "stage": np.array([0, 0, 0, 1, 1]),
            "backward": np.array([False, False, True, False, True]),
            "start": np.array([0.0, 1.0, 6.0, 3.0, 5.0]),
            "end": np.array([2.0, 3.0, 8.0, 5.0, 6.0]),
        }
        assert pipeline.busy_seconds(profile, profile["stage"] == 0) == 5.0
        shares = pipeline.idle_shares([profile], 2, 1)
        assert shares["idle % of each device"] == "38 62"
        assert shares["idle %"].median == pytest.approx(50.0)
        assert shares["(k-1)/(m+k-1) %"] == 50.0
        assert shares["simulated %"].median == pytest.approx(50.0)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "--job, or the first argument, must be one of"),
        (["xla", "--peers=pytorch"], "--peers must not be set with --job=xla"),
        (["pipeline", "--stages=13"], "--stages must be 1 to 12, the number of blocks"),
        (["pipeline", "--parts=32"], "--parts must be 1 to 16, the number of sequences"),
        (["pipeline", "--stages=two"], "--stages must be positive whole numbers"),
        (["latency", "--peers=", "--config=tiny"], "vocabulary of at least 30522"),
        (["ops", "--peers=", "--plot=out.jpg"], "must be a .png, .svg or .pdf"),
        (["generation", "--config=tiny", "--peers=", "--new_tokens=127"], "must be at most 126"),
        (
            ["training", "--dtype=int8"],
            "one of inference, latency, encode, matmul with --dtype=int8",
        ),
        (
            ["latency", "--dtype=bfloat16"],
            "one of inference, training, generation, matmul with --dtype=bfloat16",
        ),
        (["inference", "--dtype=bfloat16", "--peers=onnxruntime"], "openvino, zentf, zentorch for"),
        (["latency", "--dtype=int8", "--peers=pytorch"], "some of onnxruntime, openvino"),
        (["latency", "--dtype=int8", "--peers=", "--config=tiny"], "at least 30522"),
        (["inference", "--dtype=int8", "--peers=pytorch"], "some of onnxruntime, openvino"),
        (["inference", "--peers=nobody"], "--peers must be some of"),
        (["inference", "--peers=", "--peer_python=zentf=/bin/sh"], "/bin/sh' for the peers none"),
        (["inference", "--peer_python=nobody=/bin/sh"], "openvino, ctranslate2\n"),  # without zentf
        (["inference", "--peer_python=zentf=/nowhere"], "openvino, ctranslate2, zentf\n"),
        (["inference", "--peers=zentf", "--peer_python=zentf"], "must be NAME=PATH"),
        (["inference", "--peers=zentf", "--peer_python=zentf=/bin/false"], "interpreter of an"),
        (["training", "--peers=zentorch"], "--peers must be some of keras_hub, pytorch"),
        (["inference", "--peers=", "--baseline_dir=/"], "--baseline_dir must be a checkout"),
        (["memory", "--peers=", "--baseline_dir=/"], "--job must be one of inference"),
        (["inference", "--peers=", "--config=huge"], "--config must be one of"),
        (["ops", "--peers=", "--ops=gelu"], "--ops must be some of fused_bias_gelu"),
        (["inference", "--peers=", "--workloads=8by128"], "--workloads must be"),
        (["inference", "--peers=", "--workloads=1x513"], "at most 512"),
        (["tokenizer", "--peers=", "--materials_dir=/nowhere"], "-m research.fetch_materials"),
        (["balance", "--materials_dir=/nowhere"], "-m research.fetch_materials"),
        (["inference", "--peers=", "--config=tiny,base"], "--config must be one model"),
        (["inference", "--device=gpu"], "--job must be training"),
        (["training", "--device=gpu", "--peers=pytorch"], "--peers must not be set"),
        (["training", "--peers=", "--peak_tflops=312"], "--device must be gpu with --peak_tflops"),
        (["training", "--device=gpu", "--config=base,nothing"], "--config must be one of"),
        (["training", "--device=gpu", "--workloads=8x513"], "at most 512"),
    ],
)
def test_mistakes_are_told_before_any_work(arguments, message):
    result = run("benchmarks", *arguments)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_peer_is_named_with_its_package(monkeypatch):
    from bert_tf.errors import UserError

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
        from bert_tf.errors import UserError

        monkeypatch.setitem(
            PEERS, name, dataclasses.replace(PEERS[name], packages=("no_such_module",))
        )
        with pytest.raises(UserError, match=f"python -m venv {name}_env.*install.* {name}==2"):
            workers.require_installed([name], "inference")

    def test_the_packages_are_looked_for_in_the_other_environment(self, python, tmp_path):
        from bert_tf.errors import UserError

        entry = Entry("absent:Absent", packages=("json", "no_such_module"))
        assert entry.missing("inference", python) == ["no-such-module"]
        assert (tmp_path / "called").exists()
        if importlib.util.find_spec("zentf"):
            pytest.skip("needs an environment without zentf")
        with pytest.raises(UserError, match=f"no zentf for zentf in .*`{python} -m pip install"):
            workers.require_installed(["zentf"], "inference", {"zentf": python})

    def test_the_worker_runs_there(self, python, tmp_path, monkeypatch):
        """With the variables of the peer."""
        pytest.importorskip("tokenizers")
        entry = dataclasses.replace(PEERS["hf_tokenizers"], environment={"TF_ENABLE_X": "1"})
        monkeypatch.setitem(PEERS, "hf_tokenizers", entry)
        interpreters = workers.parse_interpreters([f"hf_tokenizers={python}"], ["hf_tokenizers"])
        workers.Worker("hf_tokenizers", "", 1, interpreters={"zentf": python}).close()
        assert not (tmp_path / "called").exists()
        workers.Worker("hf_tokenizers", "", 1, interpreters=interpreters).close()
        assert "TF_ENABLE_X=1" in (tmp_path / "called").read_text().splitlines()


class TestGpu:
    def test_without_a_gpu_it_says_so_before_any_work(self):
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            pytest.skip("needs a machine without a GPU")
        result = run("benchmarks", "training", "--device=gpu", "--peak_tflops=312")
        assert result.returncode == 1 and result.stdout == ""
        assert "must be a GPU that TensorFlow sees. Received: none" in result.stderr
        assert "Traceback" not in result.stderr

    @pytest.mark.parametrize(
        "name, expected",
        [
            ("NVIDIA A100-SXM4-80GB", 312.0),
            ("NVIDIA A10", 125.0),
            ("NVIDIA A10G", None),
            ("NVIDIA L40", 181.0),
            ("NVIDIA L40S", 362.0),
            ("NVIDIA H100 PCIe", 756.0),
            ("NVIDIA H100 80GB HBM3", 989.0),
            ("NVIDIA H200", 989.0),
            ("NVIDIA GeForce RTX 4090", None),
        ],
    )
    def test_peaks_by_name(self, name, expected):
        assert gpu_training.peak_tflops(name) == expected

    def test_an_unknown_gpu_needs_its_peak(self, monkeypatch):
        import tensorflow as tf

        from bert_tf.errors import UserError

        device = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [device])
        monkeypatch.setattr(
            tf.config.experimental, "get_device_details", lambda device: {"device_name": "GPU X"}
        )
        with pytest.raises(UserError, match="--peak_tflops.*Received: 'GPU X'"):
            gpu_training.require_gpu()
        assert gpu_training.require_gpu(100.0) == gpu_training.Gpu("GPU X", 1e14)

    @pytest.mark.parametrize("name", ["base", "large"])
    @pytest.mark.parametrize("length", [128, 512])
    def test_flops_of_the_encoder_are_those_of_the_literature(self, name, length):
        """PaLM (arXiv 2204.02311, appendix B): 6 N + 12 L H Q T a token; N without embeddings."""
        import bert_tf

        config = bert_tf.BertConfig(**models.CONFIGS[name]).to_dict()
        hidden, layers = config["hidden_size"], config["num_hidden_layers"]
        weights = layers * (4 * hidden**2 + 2 * hidden * config["intermediate_size"])
        assert weights == {"base": 84_934_656, "large": 301_989_888}[name]
        expected = length * (6 * weights + 12 * layers * hidden * length)
        head = 20 * hidden * (hidden + config["vocab_size"]) + hidden * hidden  # and the pooler
        step = workloads.training_flops(Workload.dense(1, length), config)
        assert step == pytest.approx(expected + 6 * head, rel=1e-12)

    def test_the_rows_of_a_tiny_model(self, is_full):
        """What runs on a GPU, here on the CPU, in bfloat16; in the full suite all arrangements.

        The workers are real starts.
        """
        import bert_tf
        from bert_tf.ops import native

        if native.library() is None:
            pytest.skip("needs the native ops")
        config = bert_tf.BertConfig(**models.CONFIGS["tiny"]).to_dict()

        def start(name, model_directory, environment):
            return workers.Worker(name, model_directory, 1, environment=environment)

        labels = list(gpu_training.ARRANGEMENTS)[: 4 if is_full else 1]
        results = report.Report(Options(rounds=2, turn_seconds=0, search_calls=1))
        gpu_training.run(
            start,
            {"tiny": config},
            [Workload.dense(2, 16)],
            gpu_training.Gpu("no GPU", 1e12),
            results,
            steps=2,
            arrangements={label: gpu_training.ARRANGEMENTS[label] for label in labels},
        )
        assert results.problems == []
        (table,) = results.tables
        assert [row["ops"] for row in table.rows] == labels
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
