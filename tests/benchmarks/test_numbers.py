"""The arithmetic and the inputs behind the tables. Nothing is timed."""

import json

import numpy as np
import pytest

from benchmarks import (
    balance,
    contest,
    gpu_training,
    models,
    ops,
    pipeline,
    report,
    timing,
    workers,
    workloads,
)
from benchmarks.report import Options
from benchmarks.timing import Spread
from benchmarks.turns import Turns, largest_difference, relative_error
from benchmarks.workloads import Workload


class TestTiming:
    def test_each_round_asks_everybody_once_and_starts_with_the_next(self):
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

    def turn(self, key, turn_seconds, clock):
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

    def test_a_contestant_that_returns_nan_is_off(self):
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
        weights = 12 * (4 * 768**2 + 2 * 768 * 3072)
        attention = 12 * 2 * 768 * 128**2  # scores and their product with the values
        flops = workloads.encoder_flops(Workload.dense(1, 128), config)
        assert flops == 2 * (weights * 128 + attention + 768**2)  # with the pooler


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


class TestGpu:
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
