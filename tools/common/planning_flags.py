"""The flags that describe a run and its devices, for plan_training.py."""

import dataclasses
import os

from absl import flags

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.tools.planning import calibration, devices, pipeline, published, tables
from bert_tf.tools.planning.communication import Link
from bert_tf.tools.planning.estimate import Cluster
from bert_tf.tools.planning.training_run import OBJECTIVES, OPTIMIZERS, PRECISIONS, TrainingRun

FLAGS = flags.FLAGS

flags.DEFINE_string("model", "base", "base, large, or the JSON file of a configuration.")
flags.DEFINE_integer("train_batch_size", 32, "Sequences per step, over all devices.", lower_bound=1)
flags.DEFINE_integer("max_seq_length", 128, "Length of a row in tokens.", lower_bound=4)
flags.DEFINE_float(
    "real_tokens",
    1.0,
    "Mean share of the tokens of a row that are not padding. The native ops compute only these.",
    lower_bound=1e-3,
    upper_bound=1.0,
)
flags.DEFINE_integer(
    "max_predictions_per_seq",
    None,
    "Mean number of predicted words per row. Default: 15 % of the real tokens.",
    lower_bound=1,
)
flags.DEFINE_enum("objective", "mlm_nsp", OBJECTIVES, "As in run_pretraining.py.")
flags.DEFINE_enum("optimizer", "adamw", OPTIMIZERS, "The optimizer.")
flags.DEFINE_enum("precision", "float32", list(PRECISIONS), "The dtype policy of the model.")
flags.DEFINE_integer(
    "gradient_accumulation_steps",
    None,
    "Parts of each replica's batch. Default: the best number.",
    lower_bound=1,
)
flags.DEFINE_bool(
    "gradient_checkpointing", None, "Whether blocks are computed again. Default: what is better."
)
flags.DEFINE_integer(
    "stages", None, "Pipeline stages per replica. Default: the best number.", lower_bound=1
)
flags.DEFINE_enum(
    "schedule", "1f1b", pipeline.SCHEDULES, "The order of a pipeline's micro-batches."
)
flags.DEFINE_integer(
    "num_train_steps", None, "Steps of the run, to print its duration.", lower_bound=1
)
flags.DEFINE_enum(
    "device",
    "a100-80",
    [*devices.DEVICES, devices.CPU],
    "The kind of device; cpu: a worker on machines like that of --calibration_file.",
)
flags.DEFINE_integer("num_devices", 1, "Number of devices.", lower_bound=1)
flags.DEFINE_integer(
    "devices_per_machine",
    None,
    "Devices of one machine. Default: as in the maker's machines; for cpu, all of them.",
    lower_bound=1,
)
flags.DEFINE_integer(
    "threads", None, "For cpu: threads per worker. Default: all cores, divided.", lower_bound=1
)
flags.DEFINE_enum(
    "ops",
    None,
    ("native", "reference"),
    "The value of BERT_TF_OPS in the run. Default: what `auto` selects, the native ops on a CPU "
    "and plain TensorFlow on accelerators, which also computes the padding.",
)
flags.DEFINE_float(
    "usable_memory",
    0.9,
    "Share of a device's memory that the run can use; the rest is for the framework.",
    lower_bound=0.01,
    upper_bound=1.0,
)
flags.DEFINE_float(
    "link_gbps",
    None,
    "Bandwidth between machines in Gbit/s per device and direction. Default: as in the maker's "
    "machines; required for several machines with cpu.",
    lower_bound=1e-3,
)
flags.DEFINE_float(
    "link_latency_us", None, "Latency between machines in microseconds.", lower_bound=0.0
)
flags.DEFINE_string("calibration_file", None, "The JSON file that --calibrate writes.")


def make_run() -> TrainingRun:
    """Returns the run of the flags.

    Raises:
        UserError: If they contradict each other.
    """
    config = tables.MODELS.get(FLAGS.model) or _config_of_file()
    for small, large in (
        ("max_seq_length", config.max_position_embeddings),
        ("max_predictions_per_seq", FLAGS.max_seq_length),
    ):
        value = FLAGS[small].value
        if value is not None and value > large:
            raise UserError(
                f"--{small} must be at most {large}, the length of the "
                f"{'model' if small == 'max_seq_length' else 'rows'}. Received: --{small}={value}"
            )
    ops = FLAGS.ops or ("native" if FLAGS.device == devices.CPU else "reference")
    return TrainingRun(
        config,
        FLAGS.train_batch_size,
        FLAGS.max_seq_length,
        FLAGS.real_tokens,
        FLAGS.max_predictions_per_seq,
        FLAGS.objective,
        FLAGS.optimizer,
        FLAGS.precision,
        padding_free=ops == "native",
    )


def _config_of_file():
    if not os.path.isfile(FLAGS.model):
        raise UserError(
            f"--model must be {', '.join(tables.MODELS)}, or a JSON file. Received: "
            f"--model={FLAGS.model}"
        )
    return BertConfig.from_json_file(FLAGS.model)


def make_cluster(run: TrainingRun) -> tuple[Cluster, str]:
    """Returns the devices of the flags, and a line about where their speed comes from.

    Raises:
        UserError: If the flags contradict each other.
    """
    if FLAGS.device == devices.CPU:
        cluster, line = _cpu_cluster(run)
    else:
        cluster, line = _accelerators(run)
    changes = {"memory": FLAGS.usable_memory * cluster.memory, "schedule": FLAGS.schedule}
    changes["stores_probabilities"] = not run.padding_free
    return dataclasses.replace(cluster, **changes), line


def _accelerators(run):
    device = devices.DEVICES[FLAGS.device]
    for flag in ("threads", "calibration_file"):
        if FLAGS[flag].present:
            raise UserError(f"--{flag} must be set only with --device=cpu. Received: {device.name}")
    cluster = published.cluster_of(
        device,
        FLAGS.num_devices,
        run.precision,
        devices_per_machine=FLAGS.devices_per_machine or device.devices_per_machine,
        outer=_outer(device.outer),
    )
    row = published.fitted_row(device, run.precision)
    return cluster, (
        f"An estimate: {cluster.rates.efficiency:.2f} of the ideal speed of {device.name}, as "
        f"{row.source} published for {row.num_devices} × {row.device}, {row.precision} "
        f"({row.sequences_per_second:,.1f} sequences/s)."
    )


def _cpu_cluster(run):
    if FLAGS.calibration_file is None:
        raise UserError(
            "--calibration_file must be set with --device=cpu. Received: none. --calibrate "
            "measures this machine and writes one."
        )
    if run.precision != "float32":
        raise UserError(
            "--precision must be float32 with --device=cpu, which is what --calibrate measures. "
            f"Received: --precision={run.precision}"
        )
    if not run.padding_free:
        raise UserError("--ops must be native with --device=cpu. Received: --ops=reference")
    found = calibration.read(FLAGS.calibration_file)
    workers = min(FLAGS.devices_per_machine or FLAGS.num_devices, FLAGS.num_devices)
    if workers < FLAGS.num_devices and FLAGS.link_gbps is None:
        raise UserError(
            "--link_gbps must be set for several machines with --device=cpu. Received: "
            f"--num_devices={FLAGS.num_devices}, --devices_per_machine={workers}"
        )
    threads = FLAGS.threads or max(1, found.cores // workers)
    outer = _outer(Link(1.0, 0.0))
    cluster = found.cluster(FLAGS.num_devices, workers, threads, outer)
    return cluster, (
        f"As measured on {found.processor}: {workers} workers per machine with {threads} threads "
        f"each, efficiency {cluster.rates.efficiency:.2f} of the rates of the parts of a step."
    )


def _outer(link):
    """Returns the link between machines, with what the flags say."""
    if FLAGS.link_gbps is not None:
        link = dataclasses.replace(link, bandwidth=FLAGS.link_gbps * 1e9 / 8)
    if FLAGS.link_latency_us is not None:
        link = dataclasses.replace(link, latency=FLAGS.link_latency_us * 1e-6)
    return link
