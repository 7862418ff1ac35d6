r"""Compares the speed and memory of bert_tf with those of other libraries.

    python -m benchmarks inference
    python -m benchmarks inference --dtype=bfloat16
    python -m benchmarks inference --dtype=int8
    python -m benchmarks latency --dtype=int8
    python -m benchmarks calls --threads=1
    python -m benchmarks encode --peer_python=st_onnxruntime=st_env/bin/python
    python -m benchmarks generation
    python -m benchmarks training --peers=keras_hub,pytorch --rounds=5
    python -m benchmarks ops --json=/tmp/ops.json --plot=/tmp/ops.png
    python -m benchmarks training --device=gpu
    python -m benchmarks pipeline --workloads=32x128
    python -m benchmarks inference --peers= --baseline_dir=../bert_tf_before
    python -m benchmarks inference --peer_python=zentf=zentf_env/bin/python
    python -m benchmarks families
    python -m benchmarks search
    python -m benchmarks choice
    python -m benchmarks balance

All libraries ("peers") get the same random weights and the same inputs. A search finds and prints
the fastest way to run each of them. Their outputs are compared before they are timed. Every peer
runs in its own process, and the peers are timed in turn, in several rounds. If a peer is missing,
fails or computes something else, the table is invalid and the exit status is 1; set --peers to
those that are installed. On a GPU only bert_tf is measured, in bfloat16: with its GPU kernels, with
plain TensorFlow, and with XLA. docs/performance/method.md explains the method. balance times
nothing: it counts the tokens of the replicas of data-parallel training.
"""

import functools
import os
import sys

from absl import flags

from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import positive_integers

from . import (
    balance,
    calls,
    choice,
    contest,
    encoding,
    families,
    generation,
    gpu_training,
    latency,
    matmul,
    memory,
    models,
    ops,
    pipeline,
    report,
    searching,
    tokenizer,
    workers,
    xla,
)
from .peers import OURS, OURS_XLA
from .plan import OF_SENTENCES, Plan, read_plan

FLAGS = flags.FLAGS
# The jobs in whose rounds the limits of the machine are not measured.
_WITHOUT_MACHINE = ("tokenizer", *OF_SENTENCES, "generation", "families", "search", "choice")


def measure(plan: Plan, start, results) -> None:
    """Runs the job of the plan; `start` starts a worker."""
    if plan.gpu:
        results.facts["gpu"] = plan.gpu.name
        gpu_training.run(start, plan.configs, plan.workloads, plan.gpu, results, FLAGS.gpu_steps)
    elif plan.job == "balance":
        balance.run(FLAGS.materials_dir, results, FLAGS.balance_steps)
    elif plan.job == "memory":
        lengths = positive_integers("lengths")
        peers = [OURS, *plan.peers]
        memory.run(peers, start, plan.config, plan.workloads[0], results, lengths)
    elif plan.job == "pipeline":
        counts = positive_integers("stages"), positive_integers("parts")
        pipeline.run(start, plan.config, plan.workloads[0], results, *counts)
    else:
        with workers.scratch_folder() as scratch:
            measure_side_by_side(plan, start, results, scratch)


def measure_side_by_side(plan: Plan, start, results, scratch: str) -> None:
    """Starts a worker for each peer, and runs the job of the plan with all of them."""
    materials_dir = os.path.abspath(FLAGS.materials_dir)  # workers have other working directories
    helpers = () if plan.job in _WITHOUT_MACHINE else ("machine",)
    if plan.job == "xla":
        helpers = (OURS_XLA,)
    names = [OURS, *plan.peers, *helpers]
    real_weights = plan.job in OF_SENTENCES and not FLAGS.config
    directory = os.path.join(scratch, "model")
    if real_weights:
        directory = os.path.join(materials_dir, latency.MODEL)
    with workers.crew(names, start, directory) as staff:
        results.facts["versions"] = {name: worker.version for name, worker in staff.items()}
        for name in names:
            if name not in staff:
                results.problem(f"{name} does not start")
        if not {OURS, *helpers} <= staff.keys():
            return
        if plan.job in OF_SENTENCES:
            if not real_weights:
                latency.make_model(staff[OURS], directory, plan.config, materials_dir)
            if plan.job == "calls":
                models_directory = os.path.join(scratch, "tasks")
                calls.run(staff, start, models_directory, materials_dir, results)
            else:
                measured = latency if plan.job == "latency" else encoding
                measured.run(staff, plan.peer_job, materials_dir, results)
        else:
            run_job(plan, staff, directory, results, materials_dir)


def run_job(plan: Plan, staff, directory: str, results, materials_dir: str) -> None:
    """Runs a job that makes its own model in `directory`, if it needs one."""
    job, peer_job, config, ours = plan.job, plan.peer_job, plan.config, staff[OURS]
    if job == "tokenizer":
        tokenizer.run(staff, materials_dir, results, FLAGS.tokenizer_texts)
    elif job == "generation":
        models.make_generator(ours, directory, config)
        for workload in plan.workloads:
            generation.run(staff, peer_job, config, workload, FLAGS.new_tokens, results)
    elif job == "matmul":
        rows = positive_integers("matmul_rows")
        matmul.run(staff, peer_job, FLAGS.matmul_models, rows, results, FLAGS.dtype)
    elif job == "families":
        families.run(ours, config, plan.workloads, results)
    elif job == "search":
        searching.run(ours, results)
    elif job == "choice":
        choice.run(ours, results)
    elif job == "ops":
        ops.run(staff, results, FLAGS.ops_scale, FLAGS.ops)
    elif job == "xla":
        models.make(ours, directory, config)
        xla.run(staff[OURS_XLA], config, plan.workloads, results)
    else:
        models.make(ours, directory, config)
        for workload in plan.workloads:
            contest.Contest(peer_job, workload, staff, config, results).run()


def main():
    plan = read_plan()
    threads = FLAGS.threads or os.cpu_count()
    start = functools.partial(
        workers.Worker,
        threads=threads,
        tuned_malloc=FLAGS.tuned_malloc,
        baseline=FLAGS.baseline_dir and os.path.abspath(FLAGS.baseline_dir),
        interpreters=plan.interpreters,
    )
    results = report.Report(plan.options)
    results.facts.update(
        report.machine(),
        threads=threads,
        tuned_malloc=FLAGS.tuned_malloc,
        command=" ".join(["python -m benchmarks", *sys.argv[1:]]),
        config=plan.configs if plan.gpu else plan.config,
    )
    report.print_machine(results.facts)
    try:
        measure(plan, start, results)
    except workers.PeerFailed as failure:  # before or between the tables
        results.problem(f"{plan.job}: {failure}")
    if FLAGS.json:
        report.write_json(results, FLAGS.json)
    if FLAGS.plot:
        report.write_plot(results, FLAGS.plot)
    if results.problems:
        heads = [problem.splitlines()[0] for problem in results.problems]
        raise UserError("The result must have no problems. Received:\n" + "\n".join(heads))


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        sys.argv[1] = f"--job={sys.argv[1]}"
    tool.run(main)
