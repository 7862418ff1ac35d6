r"""Estimates the memory and the time of a pre-training run before it is started.

    python tools/plan_training.py --model=large --train_batch_size=8192 --device=a100-80 \
      --num_devices=64 --precision=mixed_bfloat16 --optimizer=lamb

The program tries all ways to cut the run into replicas of the model, pipeline stages of each
replica and parts of its batch (gradient accumulation), with and without gradient checkpointing. It
prints the fastest ones that fit into memory, and where the time and the memory go.

For accelerators, the figures come from data sheets and from one published run per device; they are
estimates. For the CPUs of a machine, measure it first:

    python tools/plan_training.py --calibrate --calibration_file=machine.json
    python tools/plan_training.py --validate --calibration_file=machine.json
    python tools/plan_training.py --device=cpu --calibration_file=machine.json --num_devices=2

--validate compares estimates with measured steps of small models. --tables prints the tables of
docs/planning.md, next to published speeds.
"""

import dataclasses
import functools
import os

from absl import flags
from benchmarks.report import Table, format_table
from benchmarks.workers import PeerFailed
from common import result_files
from planning import calibration, cuts, devices, measuring, pipeline, published, tables, validation
from planning.communication import Link
from planning.training_run import OBJECTIVES, OPTIMIZERS, PRECISIONS, TrainingRun
from tqdm import tqdm

from bert_tf import tool
from bert_tf.config import BertConfig
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

_MODELS = {"base": BertConfig.base, "large": BertConfig.large}

flags.DEFINE_string("model", "base", "base, large, or the JSON file of a configuration.")
flags.DEFINE_integer(
    "train_batch_size", 32, "Sequences per step, over all devices.", lower_bound=1
)
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
flags.DEFINE_integer("top", 5, "Number of cuts to print.", lower_bound=1)
flags.DEFINE_string("calibration_file", None, "The JSON file that --calibrate writes.")
flags.DEFINE_bool("calibrate", False, "Whether to measure this machine first; takes minutes.")
flags.DEFINE_list(
    "setups",
    None,
    "For --calibrate: what to measure, WORKERSxTHREADS. Default: one worker with one thread, one "
    "with all cores, and two that share them.",
)
flags.DEFINE_bool("validate", False, "Whether to compare estimates with steps on this machine.")
flags.DEFINE_bool("tables", False, "Whether to print the tables of docs/planning.md.")
flags.DEFINE_string("json", None, "A JSON file to write the results to. Default: none.")


def parse_setup(text: str) -> tuple[int, int]:
    """Parses "2x1", two workers with one thread each."""
    parts = text.split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) for part in parts):
        raise UserError(f"--setups must be WORKERSxTHREADS, such as 2x1. Received: {text!r}")
    return int(parts[0]), int(parts[1])


def setups() -> list[tuple[int, int]]:
    cores = os.cpu_count()
    usual = [(1, 1), (1, cores), (2, max(1, cores // 2))]
    given = [parse_setup(text) for text in FLAGS.setups] if FLAGS.setups else usual
    return list(dict.fromkeys(given))


def make_run() -> TrainingRun:
    """Returns the run of the flags.

    Raises:
        UserError: If they contradict each other.
    """
    config = _MODELS[FLAGS.model]() if FLAGS.model in _MODELS else _config_of_file()
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
            f"--model must be {', '.join(_MODELS)}, or a JSON file. Received: "
            f"--model={FLAGS.model}"
        )
    return BertConfig.from_json_file(FLAGS.model)


def make_cluster(run):
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


def plan() -> dict:
    """Prints the best cuts of the run of the flags, and returns the results for --json."""
    run = make_run()
    cluster, line = make_cluster(run)
    again = FLAGS.gradient_checkpointing
    choices = cuts.Choices(
        FLAGS.stages,
        FLAGS.gradient_accumulation_steps,
        (False, True) if again is None else (again,),
    )
    found = cuts.search(run, cluster, choices)
    best = found[0]
    print(line)
    rows = tables.cut_rows(found[: FLAGS.top])
    show(f"The best {len(rows)} of {len(found)} cuts that fit", rows)
    times, memories = tables.time_rows(best), tables.memory_rows(best)
    show("Time of a step with the first", times)
    show("Memory of a device with the first, in GiB", memories)
    if FLAGS.num_train_steps:
        hours = FLAGS.num_train_steps * best.seconds_per_step / 3600
        print(f"\n{FLAGS.num_train_steps:,} steps take {hours:,.1f} hours.")
    return {"about": line, "cuts": rows, "time": times, "memory": memories}


def show(title, rows):
    print("\n" + format_table(Table(title, rows)))


def print_tables() -> dict:
    """Prints the tables of docs/planning.md."""
    results = {"published": tables.published_rows(), "devices": tables.device_rows()}
    show("BERT-large with LAMB, sequences/s", results["published"])
    numbers = ", ".join(map(str, tables.NUM_DEVICES))
    show(
        f"Sequences/s on {numbers} devices with LAMB and {tables.BATCH} sequences per step, and "
        "the cut into replicas × stages × parts",
        results["devices"],
    )
    return results


def measure() -> dict:
    """Calibrates or validates, and returns the results for --json."""
    progress = functools.partial(tqdm, leave=False)
    try:
        if FLAGS.calibrate:
            found = measuring.calibrate(setups(), functools.partial(progress, desc="calibrating"))
            calibration.write(found, FLAGS.calibration_file)
            print(f"Wrote {FLAGS.calibration_file}.")
        found = calibration.read(FLAGS.calibration_file)
        results = {"calibration": calibration.as_json(found)}
        if FLAGS.validate:
            measured = [(setup.workers, setup.threads) for setup in found.setups]
            progress = functools.partial(progress, desc="measuring")
            times, peaks = validation.validate(found, measured, progress=progress)
            show(f"Training steps on {found.processor}", times)
            show("Memory of a step", peaks)
            results |= {"times": times, "memory": peaks}
    except PeerFailed as failure:
        raise UserError(f"A worker must run to its end. Received: {failure}") from None
    return results


def main():
    jobs = [name for name in ("calibrate", "validate", "tables") if FLAGS[name].value]
    if "tables" in jobs and len(jobs) > 1:
        raise UserError(f"--tables must be set alone. Received: {', '.join(jobs)}")
    if FLAGS.setups and not FLAGS.calibrate:
        raise UserError("--setups must be set only with --calibrate. Received: no --calibrate")
    if FLAGS.json:
        tool.require_writable(os.path.dirname(os.path.abspath(FLAGS.json)), "json")
    if FLAGS.calibrate or FLAGS.validate:
        if FLAGS.calibration_file is None:
            raise UserError(f"--calibration_file must be set with --{jobs[0]}. Received: none")
        if FLAGS.calibrate:
            setups()
            directory = os.path.dirname(os.path.abspath(FLAGS.calibration_file))
            tool.require_writable(directory, "calibration_file")
        results = measure()
    elif FLAGS.tables:
        results = print_tables()
    else:
        results = plan()
    if FLAGS.json:
        result_files.write_json(FLAGS.json, results, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    tool.run(main)
