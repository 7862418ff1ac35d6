"""The flags of `python -m benchmarks`."""

from absl import flags

from research.corpora import MATERIALS_DIRECTORY

from . import contest, generation, gpu_training, matmul, memory, models, ops, pipeline
from .workloads import BUCKETS

FLAGS = flags.FLAGS
FLAG_HEADINGS = (("", "Flags of this program"),)

JOBS = (
    "inference",
    "training",
    "generation",
    "ops",
    "matmul",
    "tokenizer",
    "latency",
    "encode",
    "calls",
    "memory",
    "xla",
    "families",
    "search",
    "choice",
    "pipeline",
    "balance",
)
JOBS_OF_DTYPE = {
    "float32": JOBS,
    "bfloat16": ("inference", "training", "generation", "matmul"),
    "int8": ("inference", "latency", "encode", "matmul"),
}

flags.DEFINE_enum(
    "job", None, JOBS, "What to measure; may also be the first argument, without the flag."
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
    list(JOBS_OF_DTYPE),
    "The dtype that all peers compute in: bfloat16 for inference, training, generation and "
    "matmul; int8 for inference, latency, encode and matmul. Errors against float32 are printed. "
    "With bfloat16, every way of a peer to use it is tried, also its own choice of precision.",
)
flags.DEFINE_list(
    "config",
    None,
    f"The model: {', '.join(models.CONFIGS)}, or a JSON file; on a GPU several. Default: "
    f"base; on a GPU {','.join(gpu_training.CONFIGS)}; for latency, encode and calls "
    "the real weights of MiniLM-L6.",
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
flags.DEFINE_list(
    "variants",
    [],
    "For inference and training: the variants of bert_tf that the search tries. Default: all.",
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
    "For tokenizer, latency, encode, calls and balance: the directory of "
    "research/fetch_materials.py with texts and weights.",
)
flags.DEFINE_string(
    "json", None, "A JSON file to write all results to, without rounding. Default: none."
)
flags.DEFINE_string(
    "plot", None, "A .png, .svg or .pdf file to plot the results to. Default: none."
)
