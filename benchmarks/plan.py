"""What the flags of `python -m benchmarks` ask for, checked before any work."""

import dataclasses
import functools
import os
import re

from absl import flags
from tqdm import tqdm

from bert_tf.base.pictures import require_picture
from bert_tf.config import BertConfig
from bert_tf.errors import UserError
from bert_tf.tools.common import tool
from bert_tf.tools.common.checks import options_of, positive_integers

from . import (
    balance,
    calls,
    contest,
    encoding,
    families,
    generation,
    gpu_training,
    latency,
    matmul,
    models,
    ops,
    pipeline,
    report,
    tokenizer,
    workers,
    xla,
)
from .benchmark_flags import JOBS, JOBS_OF_DTYPE
from .peers import BASELINE, OURS, PEERS, of_job
from .workloads import RAGGED_LONGEST, RAGGED_SEQUENCES, Workload

FLAGS = flags.FLAGS
OF_SENTENCES = ("latency", "encode", "calls")  # jobs with the weights of MiniLM
_OURS_ALONE = ("xla", "families", "search", "choice", "pipeline")  # jobs that measure no peers
_USUAL_WORKLOADS = {
    **contest.WORKLOADS,
    "generation": generation.WORKLOADS,
    "memory": ("8x128",),
    "xla": xla.WORKLOADS,
    "families": families.WORKLOADS,
    "pipeline": pipeline.WORKLOADS,
}
# The modules of the jobs that read materials.
_READERS = {
    "tokenizer": tokenizer,
    "latency": latency,
    "encode": encoding,
    "calls": calls,
    "balance": balance,
}


@dataclasses.dataclass(frozen=True)
class Plan:
    """What the flags ask for, checked before any work.

    Attributes:
        job: What to measure.
        peer_job: The name of the job for the peers, with the dtype if that is not float32.
        peers: The other libraries, and `BASELINE` before them.
        interpreters: The Python interpreters of peers that are in other environments.
        configs: The arguments of `BertConfig` by name: on a CPU of one model.
        workloads: The batches.
        options: How long to measure.
        gpu: The GPU; None on a CPU.
    """

    job: str
    peer_job: str
    peers: list[str]
    interpreters: dict[str, str]
    configs: dict[str, dict]
    workloads: list[Workload]
    options: report.Options
    gpu: gpu_training.Gpu | None

    @property
    def config(self) -> dict:
        return next(iter(self.configs.values()))


def read_plan() -> Plan:
    """Returns the plan of the flags.

    Raises:
        UserError: If flags contradict each other, or something that they need is missing.
    """
    job = _checked_job()
    peer_job = job if FLAGS.dtype == "float32" else f"{job}_{FLAGS.dtype}"
    on_gpu = FLAGS.device == "gpu"
    _check_device(job, on_gpu)
    peers = [] if on_gpu else _chosen_peers(job, peer_job)
    interpreters = workers.parse_interpreters(FLAGS.peer_python, peers)
    workers.require_installed(peers, peer_job, interpreters)
    if FLAGS.baseline_dir:
        _check_baseline(job, peer_job, on_gpu)
        peers = [BASELINE, *peers]
    configs = _configs(on_gpu)
    workload_list = _workloads(job, configs, on_gpu)
    _check_sizes(job, configs, workload_list)
    options = report.Options(
        **options_of("rounds", "turn_seconds", "search_calls", "variants"),
        buckets=tuple(parse_bucket(text) for text in FLAGS.buckets),
        progress=functools.partial(tqdm, desc="timing", unit="turn", leave=False),
    )
    _check_files(job)
    if job in OF_SENTENCES:
        latency.require_vocabulary(next(iter(configs.values())))
    for flag in ("json", "plot"):
        if FLAGS[flag].value:
            tool.require_output_file(FLAGS[flag].value, flag)
    if FLAGS.plot:
        require_picture(FLAGS.plot, "--plot")
    gpu = gpu_training.require_gpu(FLAGS.peak_tflops) if on_gpu else None
    return Plan(job, peer_job, peers, interpreters, configs, workload_list, options, gpu)


def _checked_job():
    if FLAGS.job is None:
        raise UserError(
            f"--job, or the first argument, must be one of {', '.join(JOBS)}. Received: none"
        )
    jobs = JOBS_OF_DTYPE[FLAGS.dtype]
    if FLAGS.job not in jobs:
        raise UserError(
            f"--job must be one of {', '.join(jobs)} with --dtype={FLAGS.dtype}. Received: "
            f"--job={FLAGS.job}"
        )
    return FLAGS.job


def _check_device(job, on_gpu):
    if on_gpu and job != "training":
        raise UserError(f"--job must be training with --device=gpu. Received: --job={job}")
    if (on_gpu or job in _OURS_ALONE) and FLAGS.peers:
        raise UserError(
            f"--peers must not be set with --job={', --job='.join(_OURS_ALONE)} or --device=gpu, "
            f"which measure only bert_tf. Received: --peers={','.join(FLAGS.peers)}"
        )
    if not on_gpu and FLAGS.peak_tflops is not None:
        raise UserError("--device must be gpu with --peak_tflops. Received: --device=cpu")


def _chosen_peers(job, peer_job):
    known, chosen = of_job(peer_job), FLAGS.peers
    if chosen is None:
        named = {text.partition("=")[0] for text in FLAGS.peer_python}
        chosen = [name for name in known if not PEERS[name].requirements or name in named]
    peers = [name for name in chosen if name != OURS]
    strangers = sorted(set(peers) - set(known))
    if strangers:
        raise UserError(
            f"--peers must be some of {', '.join(known) or 'no peers'} for --job={job} and "
            f"--dtype={FLAGS.dtype}. Received: {strangers}"
        )
    return peers


def _check_baseline(job, peer_job, on_gpu):
    if on_gpu or peer_job not in PEERS[BASELINE].jobs:
        raise UserError(
            f"--job must be one of {', '.join(PEERS[BASELINE].jobs)} with --baseline_dir, on a "
            f"CPU. Received: --job={job}, --device={FLAGS.device}"
        )
    if not os.path.isfile(os.path.join(FLAGS.baseline_dir, "bert_tf", "__init__.py")):
        raise UserError(
            f"--baseline_dir must be a checkout of bert_tf. Received: --baseline_dir="
            f"{FLAGS.baseline_dir}"
        )


def _configs(on_gpu):
    names = FLAGS.config or (gpu_training.CONFIGS if on_gpu else ["base"])
    if len(names) > 1 and not on_gpu:
        raise UserError(
            f"--config must be one model with --device=cpu. Received: --config={','.join(names)}"
        )
    return {name: model_config(name) for name in names}


def _workloads(job, configs, on_gpu):
    usual = gpu_training.WORKLOADS if on_gpu else _USUAL_WORKLOADS.get(job, ())
    longest = min(config["max_position_embeddings"] for config in configs.values())
    if job == "generation" and FLAGS.new_tokens > longest - 2:
        raise UserError(
            f"--new_tokens must be at most {longest - 2} for this model, which has {longest} "
            f"positions. Received: --new_tokens={FLAGS.new_tokens}"
        )
    return [parse_workload(text, longest) for text in FLAGS.workloads or usual]


def _check_sizes(job, configs, workload_list):
    for flag in ("lengths", "matmul_rows", "stages", "parts"):
        positive_integers(flag)
    if job == "pipeline":
        (config,) = configs.values()
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


def _check_files(job):
    names = _READERS[job].MATERIALS if job in _READERS else ()
    directory = FLAGS.materials_dir
    missing = [name for name in names if not os.path.isfile(os.path.join(directory, name))]
    if missing:
        raise UserError(
            f"--materials_dir must have {', '.join(missing)}. Received: --materials_dir="
            f"{directory}. Run `python -m research.fetch_materials` or `make materials`."
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
