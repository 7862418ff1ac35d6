"""Pipelines, communication and cuts, compared with values computed by hand."""

import dataclasses

import pytest

from bert_tf import BertConfig
from bert_tf.errors import UserError
from bert_tf.tools.planning import cuts, pipeline
from bert_tf.tools.planning.communication import Link, all_reduce, ring_all_reduce
from bert_tf.tools.planning.estimate import Cluster, Cut, estimate
from bert_tf.tools.planning.rates import Rates
from bert_tf.tools.planning.training_run import TrainingRun

LINK, SLOW = Link(100.0, 0.5), Link(10.0, 2.0)
FAST = Link(1e18, 0.0)
RUN = TrainingRun(BertConfig.base(), 64, 128, max_predictions=20)


def cluster(number=8, **changes):
    arguments = dict(devices_per_machine=8, memory=1e15, inner=FAST, outer=FAST)
    return Cluster(Rates.of_peak(1e12, 1e18), number, **{**arguments, **changes})


class TestPipeline:
    def test_bubble(self):
        assert pipeline.bubble_share(4, 12) == 3 / 15
        assert pipeline.bubble_share(1, 5) == 0
        # As Huang et al. write it: m micro-batches take m + k - 1 turns.
        assert pipeline.pipeline_seconds([1.0, 2.0, 1.5], 4) == (4 + 2) * 2.0

    def test_micro_batches_in_flight(self):
        in_flight = pipeline.micro_batches_in_flight
        assert [in_flight("1f1b", i, 4, 32) for i in range(4)] == [4, 3, 2, 1]
        assert [in_flight("1f1b", i, 4, 3) for i in range(4)] == [3, 3, 2, 1]
        assert [in_flight("gpipe", i, 4, 32) for i in range(4)] == [32] * 4
        assert in_flight("1f1b", 0, 1, 32) == in_flight("gpipe", 0, 1, 32) == 1

    def test_blocks_go_where_time_is_left(self):
        assert pipeline.blocks_per_stage(12, 4, 1.0, 0.0, 0.0) == [3, 3, 3, 3]
        assert pipeline.blocks_per_stage(12, 2, 1.0, 0.0, 2.0) == [7, 5]
        assert pipeline.blocks_per_stage(3, 3, 1.0, 0.0, 9.0) == [1, 1, 1]
        assert pipeline.blocks_per_stage(5, 1, 1.0, 1.0, 1.0) == [5]


class TestCommunication:
    def test_ring(self):
        # 2(n - 1) messages of a quarter each.
        assert ring_all_reduce(400.0, 4, LINK) == 6 * (0.5 + 100 / 100)
        assert ring_all_reduce(400.0, 1, LINK) == 0

    def test_two_levels(self):
        assert all_reduce(400.0, 4, 1, LINK, SLOW) == ring_all_reduce(400.0, 4, LINK)
        assert all_reduce(400.0, 1, 4, LINK, SLOW) == ring_all_reduce(400.0, 4, SLOW)
        both = all_reduce(400.0, 4, 2, LINK, SLOW)
        assert both == ring_all_reduce(400.0, 4, LINK) + 2 * (2.0 + 50 / 10)

    def test_devices_of_a_stage_are_on_different_machines(self):
        """16 devices, 8 per machine, 8 stages: two replicas, each on a machine of its own."""
        machines = cluster(16, inner=FAST, outer=SLOW)
        across = estimate(RUN, Cut(2, 8, 1), machines).seconds["all_reduce"]
        assert across > 1e6 and estimate(RUN, Cut(1, 8, 1), machines).seconds["all_reduce"] < 1
        together = dataclasses.replace(machines, devices_per_machine=16)
        assert estimate(RUN, Cut(2, 8, 1), together).seconds["all_reduce"] < 1


class TestEstimate:
    def test_replicas_divide_the_time(self):
        one, eight = (estimate(RUN, Cut(n, 1, 1), cluster(n)) for n in (1, 8))
        assert eight.sequences_per_second == pytest.approx(8 * one.sequences_per_second)
        assert one.tokens_per_second == 128 * one.sequences_per_second
        # 7 products of attention instead of 6.
        assert one.seconds_per_step == pytest.approx(one.flops / 1e12, rel=0.02)

    def test_seconds_of_a_pipeline_add_up(self):
        found = estimate(RUN, Cut(1, 4, 8), cluster(4))
        assert sum(found.blocks) == 12 and len(found.memory) == 4
        slots = found.seconds["compute"] + found.seconds["send"] + found.seconds["accumulation"]
        assert found.seconds["bubble"] == pytest.approx(slots * 3 / 8)

    def test_fewer_stages_in_flight_need_less(self):
        gpipe, other = (
            estimate(RUN, Cut(1, 4, 32), cluster(4, schedule=name)).memory
            for name in ("gpipe", "1f1b")
        )
        assert all(a.activations > b.activations for a, b in zip(gpipe, other))

    def test_checkpointing_trades_time_for_memory(self):
        usual, again = (estimate(RUN, Cut(1, 1, 1, c), cluster(1)) for c in (False, True))
        assert again.largest_memory.total < usual.largest_memory.total / 2
        ratio = again.seconds_per_step / usual.seconds_per_step
        assert ratio == pytest.approx(4 / 3, abs=0.05)

    def test_an_unknown_purpose_is_never_negative(self):
        slow = cluster(8, inner=SLOW, outer=SLOW)
        for cut in cuts.all_cuts(RUN, 8):
            found = estimate(RUN, cut, slow)
            assert min(found.seconds.values()) >= 0
            assert found.bottleneck() in found.seconds


class TestCuts:
    def test_divisors(self):
        for number in (1, 2, 12, 16, 97):
            expected = [n for n in range(1, number + 1) if number % n == 0]
            assert cuts.divisors(number) == expected

    def test_all_cuts(self):
        run = dataclasses.replace(RUN, train_batch_size=6)
        found = cuts.all_cuts(run, 4, cuts.Choices(checkpointing=(False,)))
        # 4 replicas do not divide 6 sequences.
        expected = [(2, 2, 1), (2, 2, 3), (1, 4, 1), (1, 4, 2), (1, 4, 3), (1, 4, 6)]
        assert [(cut.replicas, cut.stages, cut.parts) for cut in found] == expected
        chosen = cuts.all_cuts(run, 4, cuts.Choices(stages=2, parts=3))
        assert chosen == [Cut(2, 2, 3, False), Cut(2, 2, 3, True)]

    def test_the_fastest_that_fits_is_first(self):
        found = cuts.search(RUN, cluster(4))
        times = [one.seconds_per_step for one in found]
        assert times == sorted(times) and found[0].cut == Cut(4, 1, 1)
        least = min(one.largest_memory.total for one in found)
        few = cuts.search(RUN, cluster(4, memory=least * 1.001))
        assert {one.cut for one in few} < {one.cut for one in found}

    def test_nothing_fits(self):
        with pytest.raises(UserError) as caught:
            cuts.search(RUN, cluster(1, memory=2**30))
        text = str(caught.value)
        assert "1.00 GiB" in text and "of which" in text and "--num_devices=" in text
        enough = int(text.rpartition("--num_devices=")[2].rstrip("."))
        cuts.search(RUN, cluster(enough, memory=2**30))
        with pytest.raises(UserError):
            cuts.search(RUN, cluster(enough // 2, memory=2**30))

    def test_nothing_ever_fits(self):
        with pytest.raises(UserError, match=r"at least [\d.]+ GiB\.$"):
            cuts.search(RUN, cluster(1, memory=2**20))

    def test_no_cut_divides_the_batch(self):
        with pytest.raises(UserError, match="must be replicas × stages"):
            cuts.search(RUN, cluster(13))
