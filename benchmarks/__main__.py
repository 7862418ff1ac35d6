r"""Compares the speed and memory of bert_tf with those of other libraries.

    python -m benchmarks inference
    python -m benchmarks inference --dtype=bfloat16
    python -m benchmarks inference --dtype=int8
    python -m benchmarks latency --dtype=int8
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
import re
import sys

from absl import flags
from tqdm import tqdm

from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import options_of, positive_integers
from research import pictures
from research.corpora import MATERIALS_DIRECTORY

from . import (
    balance,
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
from .peers import BASELINE, OURS, OURS_XLA, PEERS, of_job
from .workloads import BUCKETS, RAGGED_LONGEST, RAGGED_SEQUENCES, Workload

FLAGS = flags.FLAGS

_JOBS = (
    "inference",
    "training",
    "generation",
    "ops",
    "matmul",
    "tokenizer",
    "latency",
    "encode",
    "memory",
    "xla",
    "families",
    "search",
    "pipeline",
    "balance",
)
_JOBS_OF_DTYPE = {
    "float32": _JOBS,
    "bfloat16": ("inference", "training", "generation", "matmul"),
    "int8": ("inference", "latency", "encode", "matmul"),
}

flags.DEFINE_enum(
    "job", None, _JOBS, "What to measure; may also be the first argument, without the flag."
)
flags.DEFINE_list(
    "peers",
    None,
    "The libraries to compare with. Default: all that support the job; zentf and zentorch only if "
    "--peer_python has them. bert_tf is always measured.",
)
flags.DEFINE_list(
    "peer_python",
    [],
    "Peers that are installed in other environments, and the Python interpreters of these, such as "
    "zentf=zentf_env/bin/python. zentf needs one, as it requires NumPy 1.26.",
)
flags.DEFINE_string(
    "baseline_dir",
    None,
    "Another checkout of bert_tf with its ops built. It is measured as the peer `baseline`, in the "
    "same rounds, with the tools of this checkout.",
)
flags.DEFINE_enum(
    "device", "cpu", ("cpu", "gpu"), "The device. gpu is for training only, and needs a GPU."
)
flags.DEFINE_enum(
    "dtype",
    "float32",
    list(_JOBS_OF_DTYPE),
    "The dtype that all peers compute in: bfloat16 for inference, training, generation and "
    "matmul; int8 for inference, latency, encode and matmul. Errors against float32 are printed. "
    "With bfloat16, every way of a peer to use it is tried, also its own choice of precision.",
)
flags.DEFINE_list(
    "config",
    None,
    f"The model: {', '.join(models.CONFIGS)}, or a JSON file; on a GPU several. Default: "
    f"base; on a GPU {','.join(gpu_training.CONFIGS)}; for latency and encode the "
    "real weights of MiniLM-L6.",
)
flags.DEFINE_list(
    "workloads",
    None,
    "For inference, training, generation, xla, families and pipeline: the batches. BATCHxLENGTH "
    "has equal lengths; ragged or raggedCOUNT has the lengths of real text. Default for inference: "
    f"{','.join(contest.WORKLOADS['inference'])}; for training: "
    f"{','.join(contest.WORKLOADS['training'])}; for generation: "
    f"{','.join(generation.WORKLOADS)}; on a GPU: {','.join(gpu_training.WORKLOADS)}.",
)
flags.DEFINE_float(
    "peak_tflops",
    None,
    "For --device=gpu: the GPU's dense bfloat16 peak in TFLOP/s. Default: from a table of A10, "
    "A30, A100, H100, H200, L4, L40 and L40S.",
    lower_bound=1e-3,
)
flags.DEFINE_integer(
    "gpu_steps", 10, "For --device=gpu: number of optimizer steps per measurement.", lower_bound=1
)
flags.DEFINE_integer(
    "threads", None, "Number of threads per call, for all peers. Default: all cores.", lower_bound=1
)
flags.DEFINE_integer("rounds", 9, "Number of times that each peer is timed.", lower_bound=1)
flags.DEFINE_integer(
    "search_calls", 3, "Number of timed calls of each variant in the search.", lower_bound=1
)
flags.DEFINE_list(
    "buckets",
    [str(size or "all") for size in BUCKETS],
    "For ragged workloads: the batch sizes that the search tries for the peers' length-sorted "
    "batches, separated by commas; all: one batch.",
)
flags.DEFINE_float(
    "turn_seconds",
    0.5,
    "Length of one measurement in seconds; a short call is repeated to fill it.",
    lower_bound=0.0,
)
flags.DEFINE_bool(
    "tuned_malloc",
    False,
    "Whether glibc keeps freed memory (MALLOC_TRIM_THRESHOLD_ and similar), for all peers.",
)
flags.DEFINE_integer(
    "ops_scale", 1, "For ops: the sizes are divided by this, for a quick run.", lower_bound=1
)
flags.DEFINE_list("ops", list(ops.NAMES), "For ops: the ops.")
flags.DEFINE_list(
    "matmul_models", list(matmul.MODELS), "For matmul: the models whose dense layers to measure."
)
flags.DEFINE_list(
    "matmul_rows",
    [str(rows) for rows in matmul.ROWS],
    "For matmul: the numbers of rows of the left matrix, M, separated by commas.",
)
flags.DEFINE_integer(
    "new_tokens", 32, "For generation: number of tokens to write per source.", lower_bound=1
)
flags.DEFINE_integer(
    "tokenizer_texts", 10000, "For tokenizer: maximum number of texts per language.", lower_bound=1
)
flags.DEFINE_integer(
    "balance_steps", 500, "For balance: number of steps per row of a table.", lower_bound=1
)
flags.DEFINE_list(
    "lengths", [str(length) for length in memory.LENGTHS], "For memory: the sequence lengths."
)
flags.DEFINE_list(
    "stages",
    [str(count) for count in pipeline.STAGE_COUNTS],
    "For pipeline: the numbers of devices, each with one thread; 1 is the step without stages.",
)
flags.DEFINE_list(
    "parts",
    [str(count) for count in pipeline.PART_COUNTS],
    "For pipeline: the numbers of parts of the batch, for gradient accumulation.",
)
flags.DEFINE_string(
    "materials_dir",
    MATERIALS_DIRECTORY,
    "For tokenizer, latency, encode and balance: the directory of research/fetch_materials.py with "
    "texts and weights.",
)
flags.DEFINE_string(
    "json", None, "A JSON file to write all results to, without rounding. Default: none."
)
flags.DEFINE_string(
    "plot", None, "A .png, .svg or .pdf file to plot the results to. Default: none."
)


def model_config(name: str) -> dict:
    """Returns the arguments of `BertConfig` for a name in `models.CONFIGS` or a JSON file."""
    if name in models.CONFIGS:
        config = BertConfig(**models.CONFIGS[name])
    elif os.path.isfile(name):
        config = BertConfig.from_json_file(name)
    else:
        raise UserError(
            f"--config must be one of {', '.join(models.CONFIGS)}, or a JSON file. "
            f"Received: {name!r}"
        )
    return config.to_dict()


def parse_workload(text: str, longest: int) -> Workload:
    """Parses "8x128", "ragged" or "ragged32", for a model of this maximum length."""
    dense = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if dense:
        if int(dense[2]) > longest:
            raise UserError(
                f"--workloads must have at most {longest} tokens per sequence for this model. "
                f"Received: {text!r}"
            )
        return Workload.dense(int(dense[1]), int(dense[2]))
    ragged = re.fullmatch(r"ragged([1-9]\d*)?", text)
    if ragged:
        return Workload.ragged(int(ragged[1] or RAGGED_SEQUENCES), min(longest, RAGGED_LONGEST))
    raise UserError(f"--workloads must be BATCHxLENGTH, ragged or raggedCOUNT. Received: {text!r}")


def parse_bucket(text: str) -> int | None:
    """Parses a bucket size, such as "8", or "all" (None)."""
    if text == "all":
        return None
    if not re.fullmatch(r"[1-9]\d*", text):
        raise UserError(f"--buckets must be sizes or 'all'. Received: {text!r}")
    return int(text)


def measure(start, job, peer_job, peers, config, workload_list, results) -> None:
    """Starts the workers of `job` and runs it; `peer_job` is its name for the peers."""
    if job == "memory":
        lengths = positive_integers("lengths")
        memory.run([OURS, *peers], start, config, workload_list[0], results, lengths)
        return
    if job == "pipeline":
        counts = positive_integers("stages"), positive_integers("parts")
        pipeline.run(start, config, workload_list[0], results, *counts)
        return
    materials_dir = os.path.abspath(FLAGS.materials_dir)  # workers have other working directories
    alone = ("tokenizer", "latency", "encode", "generation", "families", "search")
    helpers = dict.fromkeys(alone, ())
    helpers = {**helpers, "xla": (OURS_XLA,)}.get(job, ("machine",))
    names = [OURS, *peers, *helpers]
    with workers.scratch_folder() as scratch:
        directory = os.path.join(scratch, "model")
        real_weights = job in ("latency", "encode") and not FLAGS.config
        if real_weights:
            directory = os.path.join(materials_dir, latency.MODEL)
        with workers.crew(names, start, directory) as staff:
            results.facts["versions"] = {name: worker.version for name, worker in staff.items()}
            for name in names:
                if name not in staff:
                    results.problem(f"{name} does not start")
            if not {OURS, *helpers} <= staff.keys():
                return
            if job == "tokenizer":
                tokenizer.run(staff, materials_dir, results, FLAGS.tokenizer_texts)
            elif job in ("latency", "encode"):
                if not real_weights:
                    latency.make_model(staff[OURS], directory, config, materials_dir)
                measured = latency if job == "latency" else encoding
                measured.run(staff, peer_job, materials_dir, results)
            elif job == "generation":
                models.make_generator(staff[OURS], directory, config)
                for workload in workload_list:
                    generation.run(staff, peer_job, config, workload, FLAGS.new_tokens, results)
            elif job == "matmul":
                rows = positive_integers("matmul_rows")
                matmul.run(staff, peer_job, FLAGS.matmul_models, rows, results, FLAGS.dtype)
            elif job == "families":
                families.run(staff[OURS], config, workload_list, results)
            elif job == "search":
                searching.run(staff[OURS], results)
            elif job == "ops":
                ops.run(staff, results, FLAGS.ops_scale, FLAGS.ops)
            else:
                config = models.make(staff[OURS], directory, config)
                if job == "xla":
                    xla.run(staff[OURS_XLA], config, workload_list, results)
                    return
                for workload in workload_list:
                    contest.Contest(peer_job, workload, staff, config, results).run()


def main():
    if FLAGS.job is None:
        raise UserError(
            f"--job, or the first argument, must be one of {', '.join(_JOBS)}. Received: none"
        )
    job = peer_job = FLAGS.job
    if job not in _JOBS_OF_DTYPE[FLAGS.dtype]:
        raise UserError(
            f"--job must be one of {', '.join(_JOBS_OF_DTYPE[FLAGS.dtype])} with "
            f"--dtype={FLAGS.dtype}. Received: --job={job}"
        )
    if FLAGS.dtype != "float32":
        peer_job = f"{job}_{FLAGS.dtype}"
    # All flags are checked before any work.
    on_gpu = FLAGS.device == "gpu"
    if on_gpu and job != "training":
        raise UserError(f"--job must be training with --device=gpu. Received: --job={job}")
    if (on_gpu or job in ("xla", "families", "search", "pipeline")) and FLAGS.peers:
        raise UserError(
            "--peers must not be set with --job=xla, --job=families, --job=search, "
            "--job=pipeline or --device=gpu, which measure only bert_tf. "
            f"Received: --peers={','.join(FLAGS.peers)}"
        )
    if not on_gpu and FLAGS.peak_tflops is not None:
        raise UserError("--device must be gpu with --peak_tflops. Received: --device=cpu")
    chosen = FLAGS.peers
    if chosen is None:
        named = {text.partition("=")[0] for text in FLAGS.peer_python}
        chosen = [
            name for name in of_job(peer_job) if not PEERS[name].requirements or name in named
        ]
    peers = [] if on_gpu else [name for name in chosen if name != OURS]
    strangers = sorted(set(peers) - set(of_job(peer_job)))
    if strangers:
        raise UserError(
            f"--peers must be some of {', '.join(of_job(peer_job)) or 'no peers'} for "
            f"--job={job} and --dtype={FLAGS.dtype}. Received: {strangers}"
        )
    interpreters = workers.parse_interpreters(FLAGS.peer_python, peers)
    workers.require_installed(peers, peer_job, interpreters)
    baseline_dir = FLAGS.baseline_dir and os.path.abspath(FLAGS.baseline_dir)
    if baseline_dir:
        if on_gpu or peer_job not in PEERS[BASELINE].jobs:
            raise UserError(
                f"--job must be one of {', '.join(PEERS[BASELINE].jobs)} with --baseline_dir, on a "
                f"CPU. Received: --job={job}, --device={FLAGS.device}"
            )
        if not os.path.isfile(os.path.join(baseline_dir, "bert_tf", "__init__.py")):
            raise UserError(
                f"--baseline_dir must be a checkout of bert_tf. Received: --baseline_dir="
                f"{FLAGS.baseline_dir}"
            )
        peers = [BASELINE, *peers]
    config_names = FLAGS.config or (gpu_training.CONFIGS if on_gpu else ["base"])
    if len(config_names) > 1 and not on_gpu:
        raise UserError(
            "--config must be one model with --device=cpu. Received: "
            f"--config={','.join(FLAGS.config)}"
        )
    configs = {name: model_config(name) for name in config_names}
    config = configs[config_names[0]]
    usual = {
        **contest.WORKLOADS,
        "generation": generation.WORKLOADS,
        "memory": ("8x128",),
        "xla": xla.WORKLOADS,
        "families": families.WORKLOADS,
        "pipeline": pipeline.WORKLOADS,
    }.get(job, ())
    texts = FLAGS.workloads or (gpu_training.WORKLOADS if on_gpu else usual)
    longest = min(config["max_position_embeddings"] for config in configs.values())
    workload_list = [parse_workload(text, longest) for text in texts]
    if job == "generation" and FLAGS.new_tokens > longest - 2:
        raise UserError(
            f"--new_tokens must be at most {longest - 2} for this model, which has {longest} "
            f"positions. Received: --new_tokens={FLAGS.new_tokens}"
        )
    for flag in ("lengths", "matmul_rows", "stages", "parts"):
        positive_integers(flag)
    if job == "pipeline":
        for flag, most, what in (
            ("stages", config["num_hidden_layers"], "blocks"),
            ("parts", len(workload_list[0].lengths), "sequences"),
        ):
            if not 1 <= max(positive_integers(flag), default=0) <= most:
                raise UserError(
                    f"--{flag} must be 1 to {most}, the number of {what}. Received: "
                    f"--{flag}={','.join(FLAGS[flag].value)}"
                )
    for flag, known in (("ops", ops.NAMES), ("matmul_models", matmul.MODELS)):
        if not set(FLAGS[flag].value) <= set(known):
            raise UserError(
                f"--{flag} must be some of {', '.join(known)}. Received: {FLAGS[flag].value}"
            )
    options = report.Options(
        **options_of("rounds", "turn_seconds", "search_calls"),
        buckets=tuple(parse_bucket(text) for text in FLAGS.buckets),
        progress=functools.partial(tqdm, desc="timing", unit="turn", leave=False),
    )
    readers = {"tokenizer": tokenizer, "latency": latency, "encode": encoding, "balance": balance}
    materials = readers[job].MATERIALS if job in readers else ()
    directory = FLAGS.materials_dir
    missing = [name for name in materials if not os.path.isfile(os.path.join(directory, name))]
    if missing:
        raise UserError(
            f"--materials_dir must have {', '.join(missing)}. Received: --materials_dir="
            f"{directory}. Run `python -m research.fetch_materials` or `make materials`."
        )
    if job in ("latency", "encode"):
        latency.require_vocabulary(config)
    for flag in ("json", "plot"):
        if FLAGS[flag].value:
            tool.require_output_file(FLAGS[flag].value, flag)
    if FLAGS.plot:
        pictures.require_plotting(FLAGS.plot, "plot")
    device = gpu_training.require_gpu(FLAGS.peak_tflops) if on_gpu else None

    threads = FLAGS.threads or os.cpu_count()
    start = functools.partial(
        workers.Worker,
        threads=threads,
        tuned_malloc=FLAGS.tuned_malloc,
        baseline=baseline_dir,
        interpreters=interpreters,
    )
    results = report.Report(options)
    results.facts.update(
        report.machine(),
        threads=threads,
        tuned_malloc=FLAGS.tuned_malloc,
        command=" ".join(["python -m benchmarks", *sys.argv[1:]]),
        config=configs if on_gpu else config,
    )
    machine = results.facts
    print(
        f"{machine['processor']}, {machine['cores']} cores ({', '.join(machine['instructions'])}); "
        f"{machine['threads']} threads; {machine['system']}",
        flush=True,
    )
    if on_gpu:
        results.facts["gpu"] = device.name
        gpu_training.run(start, configs, workload_list, device, results, FLAGS.gpu_steps)
    elif job == "balance":
        balance.run(FLAGS.materials_dir, results, FLAGS.balance_steps)
    else:
        try:
            measure(start, job, peer_job, peers, config, workload_list, results)
        except workers.PeerFailed as failure:  # before or between the tables
            results.problem(f"{job}: {failure}")
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
