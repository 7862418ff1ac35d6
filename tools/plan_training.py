r"""Estimates the memory and the time of a pre-training run before it is started.

    bert-tf plan_training --model=large --train_batch_size=8192 --device=a100-80 \
      --num_devices=64 --precision=mixed_bfloat16 --optimizer=lamb

The program tries all ways to cut the run into replicas of the model, pipeline stages of each
replica and parts of its batch (gradient accumulation), with and without gradient checkpointing. It
prints the fastest ones that fit into memory, and where the time and the memory go.

For accelerators, the figures come from data sheets and from one published run per device; they are
estimates. For the CPUs of a machine, measure it first:

    bert-tf plan_training --calibrate --calibration_file=machine.json
    bert-tf plan_training --validate --calibration_file=machine.json
    bert-tf plan_training --device=cpu --calibration_file=machine.json --num_devices=2

--validate compares estimates with measured steps of small models. --tables prints the tables of
docs/planning.md, next to published speeds.
"""

import functools
import os

from absl import flags

from benchmarks.report import Table, format_table
from benchmarks.workers import PeerFailed
from bert_tf.base.progress import progress_bar
from bert_tf.errors import UserError
from bert_tf.tools.common import planning_flags, result_files, tool
from bert_tf.tools.planning import calibration, cuts, measuring, tables, validation

FLAGS = flags.FLAGS

flags.DEFINE_integer("top", 5, "Number of cuts to print.", lower_bound=1)
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


def plan() -> dict:
    """Prints the best cuts of the run of the flags, and returns the results for --json."""
    run = planning_flags.make_run()
    cluster, line = planning_flags.make_cluster(run)
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
    progress = functools.partial(progress_bar, leave=False)
    try:
        if FLAGS.calibrate:
            found = measuring.calibrate(setups(), functools.partial(progress, desc="calibrating"))
            calibration.write(found, FLAGS.calibration_file)
            print(f"Wrote {FLAGS.calibration_file}.")
        found = calibration.read(FLAGS.calibration_file)
        results = {"calibration": calibration.as_json(found)}
        if FLAGS.validate:
            progress = functools.partial(progress, desc="measuring")
            times, peaks = validation.validate(found, progress)
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
        tool.require_output_file(FLAGS.json, "json")
    if FLAGS.calibrate or FLAGS.validate:
        if FLAGS.calibration_file is None:
            raise UserError(f"--calibration_file must be set with --{jobs[0]}. Received: none")
        if FLAGS.calibrate:
            setups()
            tool.require_output_file(FLAGS.calibration_file, "calibration_file")
        results = measure()
    elif FLAGS.tables:
        results = print_tables()
    else:
        results = plan()
    if FLAGS.json:
        result_files.write_json(FLAGS.json, results, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    tool.run(main)
