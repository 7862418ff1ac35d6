"""Published speeds of BERT pre-training, and what share of the peak they reached.

The efficiency of an accelerator is that of one published run, for which the estimate is exact by
construction: for GPUs NVIDIA's TensorFlow 2 code, which is closest to ours, for TPUs Google's from
the LAMB paper. All other rows test the estimates. MLPerf's submissions have kernels of their own
(on H100 in 8 bits, on TPU v4 with a speed that leaves no room for padding), so they are faster.

Sources:
    TF2     github.com/NVIDIA/DeepLearningExamples, TensorFlow2/LanguageModeling/BERT/README.md,
            "Pre-training training performance", sequences/s
    MLPerf  github.com/mlcommons/training_results_<round>, the log result_0.txt of a submission:
            training samples between two of its time stamps, evaluations included
    LAMB    You et al. 2019 (arXiv 1904.00962), table 1: batch size × steps / time
"""

import dataclasses

from bert_tf.config import BertConfig
from bert_tf.errors import UserError

from .devices import DEVICES, Device
from .estimate import Cluster, Cut, Estimate, estimate
from .rates import Rates
from .training_run import TrainingRun

# Of NVIDIA's and Google's scripts at lengths 128 and 512; MLPerf says 76 in its logs.
_PREDICTIONS = {128: 20, 512: 80}
_MLPERF_PREDICTIONS = 76
# Krell et al. 2021 (arXiv 2107.02027): half of MLPerf's tokens at length 512 are padding. NVIDIA's
# submissions drop it.
_MLPERF_REAL_TOKENS = 0.5


@dataclasses.dataclass(frozen=True)
class Published:
    """A published run of BERT-large with LAMB.

    Args:
        source: Where it is published; see above.
        device: A key of `DEVICES`.
        num_devices: How many.
        precision: A key of `PRECISIONS`.
        batch: Sequences per device and part.
        parts: Parts of the gradient accumulation.
        sequences_per_second: What was measured.
        lengths: Sequence lengths, each with its share of the sequences.
        predictions: Predicted words per sequence. None: those of the length.
        real_tokens: Share of tokens that were computed.
        is_fitted: Whether the efficiency of the device comes from this row.
        stock_attention: Whether attention stores its probabilities.
    """

    source: str
    device: str
    num_devices: int
    precision: str
    batch: int
    parts: int
    sequences_per_second: float
    lengths: tuple[tuple[int, float], ...] = ((128, 1.0),)
    predictions: int | None = None
    real_tokens: float = 1.0
    is_fitted: bool = False
    stock_attention: bool = True

    def run(self, length: int) -> TrainingRun:
        return TrainingRun(
            BertConfig.large(),
            self.batch * self.parts * self.num_devices,
            length,
            self.real_tokens,
            self.predictions or _PREDICTIONS[length],
            optimizer="lamb",
            precision=self.precision,
        )

    def cut(self) -> Cut:
        return Cut(self.num_devices, 1, self.parts)


_LONG = ((512, 1.0),)
_BOTH = ((128, 0.9), (512, 0.1))  # LAMB, section 4: the last tenth of the epochs is at length 512


def _tf2(
    device, num_devices, batch, parts, speed, lengths=((128, 1.0),), precision=None, fit=False
):
    precision = precision or "mixed_float16"
    row = (device, num_devices, precision, batch, parts, speed, lengths)
    return Published("TF2", *row, is_fitted=fit)


def _mlperf(name, device, num_devices, batch, speed):
    is_gpu = "tpu" not in device
    precision = "mixed_float16" if is_gpu else "mixed_bfloat16"
    row = (device, num_devices, precision, batch, 1, speed, _LONG, _MLPERF_PREDICTIONS)
    real_tokens = _MLPERF_REAL_TOKENS if is_gpu else 1.0
    return Published(f"MLPerf {name}", *row, real_tokens, stock_attention=not is_gpu)


def _lamb(chips, batch, steps, minutes, fit=False):
    row = ("tpu-v3", chips, "mixed_bfloat16", batch // chips, 1, batch * steps / (60 * minutes))
    return Published("LAMB", *row, _BOTH, is_fitted=fit)


PUBLISHED = (
    _tf2("v100-32", 1, 60, 1024, 206.5, fit=True),
    _tf2("v100-32", 4, 60, 256, 789.75),
    _tf2("v100-32", 8, 60, 128, 1561.77),
    _tf2("v100-32", 16, 60, 64, 3077.99),
    _tf2("v100-32", 64, 60, 16, 13370.21),
    _tf2("v100-32", 256, 60, 4, 42697.42),
    _tf2("v100-32", 1, 10, 3072, 40.95, _LONG),
    _tf2("v100-32", 16, 10, 192, 614.94, _LONG),
    _tf2("v100-32", 256, 10, 24, 7834.72, _LONG),
    _tf2("v100-32", 1, 32, 2048, 49.97, precision="float32", fit=True),
    _tf2("v100-32", 16, 32, 128, 762.22, precision="float32"),
    _tf2("v100-32", 256, 32, 8, 10383.57, precision="float32"),
    _tf2("v100-32", 1, 6, 5120, 11.06, _LONG, "float32"),
    _tf2("a100-80", 1, 312, 256, 485.59, fit=True),
    _tf2("a100-80", 8, 312, 32, 3799.24),
    _tf2("a100-80", 16, 312, 16, 7551.37),
    _tf2("a100-80", 64, 312, 4, 29711.11),
    _tf2("a100-80", 256, 312, 1, 110280.73),
    _tf2("a100-80", 1, 40, 768, 96.52, _LONG),
    _tf2("a100-80", 8, 40, 96, 649.69, _LONG),
    _tf2("a100-80", 8, 40, 96, 749.73, _LONG),  # the same in the table of several machines
    _tf2("a100-80", 64, 40, 12, 5870.83, _LONG),
    _tf2("a100-80", 256, 40, 3, 22506.23, _LONG),
    _tf2("a100-80", 1, 176, 512, 282.98, precision="float32", fit=True),
    _tf2("a100-80", 256, 176, 2, 59569.77, precision="float32"),
    _mlperf("v2.0", "a100-80", 8, 56, 2403.2),
    _mlperf("v2.1", "h100-80", 8, 96, 6771.5),
    _mlperf("v0.7", "tpu-v3", 16, 28, 972.8),
    _mlperf("v1.0", "tpu-v4", 64, 48, 12313.5),
    _lamb(16, 512, 1_000_000, 82.8 * 60, fit=True),
    _lamb(32, 1024, 500_000, 43.2 * 60),
    _lamb(64, 2048, 250_000, 21.4 * 60),
    _lamb(128, 4096, 125_000, 693.6),
    _lamb(256, 8192, 62_500, 390.5),
    _lamb(1024, 32768, 15_625, 101.2),
)


# The published run that a device's efficiency comes from, where it has none of its own.
_SISTERS = {"a100-40": "a100-80", "h100-80": "a100-80", "tpu-v4": "tpu-v3"}


def fitted_row(device: Device, precision: str) -> Published:
    """Returns the published run that the efficiency comes from.

    It is in float32 if `precision` is and there is one.

    Raises:
        UserError: If the device cannot compute in the precision.
    """
    if precision not in device.peak_flops:
        raise UserError(
            f"--precision must be one of {', '.join(device.peak_flops)} on {device.name}. "
            f"Received: --precision={precision}"
        )
    name = _SISTERS.get(device.name, device.name)
    rows = [row for row in PUBLISHED if row.is_fitted and row.device == name]
    is_float32 = precision == "float32"
    return min(rows, key=lambda row: (row.precision == "float32") != is_float32)


def efficiency(device: Device, precision: str) -> float:
    """Returns the share of the ideal speed that the published run of `fitted_row` reached.

    Raises:
        UserError: If the device cannot compute in the precision.
    """
    row = fitted_row(device, precision)
    at_peak = _cluster(DEVICES[row.device], row.num_devices, row.precision, 1.0)
    scaling = fixed = 0.0
    for length, share in row.lengths:
        found = _estimate(row, length, at_peak)
        # The rest, communication and accumulation, does not depend on the efficiency.
        scaled = found.seconds["compute"] + found.seconds["optimizer"]
        scaling += share * scaled / found.sequences
        fixed += share * (found.seconds_per_step - scaled) / found.sequences
    return scaling / (1 / row.sequences_per_second - fixed)


def cluster_of(device: Device, num_devices: int, precision: str, **changes) -> Cluster:
    """Returns devices at the efficiency of the published run.

    Args:
        device: The device.
        num_devices: How many.
        precision: The precision of the run.
        **changes: Arguments of `Cluster`.

    Raises:
        UserError: If the device cannot compute in the precision.
    """
    return _cluster(device, num_devices, precision, efficiency(device, precision), **changes)


def _cluster(device, num_devices, precision, share, **changes):
    rates = Rates.of_peak(device.peak_flops[precision], device.memory_bandwidth, share)
    arguments = {
        "devices_per_machine": device.devices_per_machine,
        "memory": device.memory,
        "inner": device.inner,
        "outer": device.outer,
    }
    return Cluster(rates, num_devices, **{**arguments, **changes})


def estimated_speed(row: Published) -> float:
    """Returns the estimate of a published run in sequences per second."""
    cluster = cluster_of(DEVICES[row.device], row.num_devices, row.precision)
    return 1 / sum(
        share / _estimate(row, length, cluster).sequences_per_second
        for length, share in row.lengths
    )


def _estimate(row, length, cluster) -> Estimate:
    cluster = dataclasses.replace(cluster, stores_probabilities=row.stock_attention)
    return estimate(row.run(length), row.cut(), cluster)
