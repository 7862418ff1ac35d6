r"""Reports what a pre-training step becomes on a GPU, on a machine that has none.

    python -m benchmarks.gpu_program --compiler_python=jax_env/bin/python
    python -m benchmarks.gpu_program --compiler_python= --num_hidden_layers=2
    python -m benchmarks.gpu_program --compiler_python=jax_env/bin/python --num_replicas=2 \
      --all_reduce_dtype=bfloat16

Without XLA it counts the operations that TensorFlow executes in a step, after its graph optimizer.
With XLA it compiles the step for the GPU of --target and counts the kernels, the bytes that they
read and write, and the dtypes of the matrix multiplications. Both are done with the GPU kernels of
bert_tf ("native") and with plain TensorFlow ("reference"), in mixed_bfloat16. Nothing is run, so
no number here is a time that was measured: "floor" is bytes divided by the bandwidth in --target.
With --num_replicas, each GPU has a batch of --workload, and the all-reduces are counted, too.

XLA for GPUs comes from JAX, in an environment of its own (its TensorFlow would be another one):

    python -m venv jax_env && jax_env/bin/pip install 'jax[cuda12]==0.10.*'
"""

import json
import os
import pathlib
import subprocess
import tempfile

from absl import flags

from bert_tf.errors import UserError
from bert_tf.tools.common import tool

from ..workloads import Workload
from . import optimized_hlo, steps

FLAGS = flags.FLAGS
_HERE = pathlib.Path(__file__).resolve().parent

flags.DEFINE_string(
    "compiler_python",
    "",
    "The Python of an environment with jax[cuda12], which compiles for the GPU. Empty: only the "
    "operations without XLA are counted.",
)
flags.DEFINE_string("target", str(_HERE / "h100.txt"), "XLA's description of the GPU.")
flags.DEFINE_string("workload", "128x128", "Batch size x length.")
flags.DEFINE_integer("num_hidden_layers", 12, "The number of encoder blocks.", lower_bound=1)
flags.DEFINE_integer("num_replicas", 1, "The number of GPUs of the compiled step.", lower_bound=1)
flags.DEFINE_enum(
    "all_reduce_dtype", None, ["bfloat16", "float32"], "See AdamWeightDecay. Default: none."
)
flags.DEFINE_integer("all_reduce_bytes_per_pack", 0, "See AdamWeightDecay.", lower_bound=0)
flags.DEFINE_list("ops", ["native", "reference"], "The implementations of bert_tf's ops.")
flags.DEFINE_string("json", None, "A file to write the numbers to. Default: none.")


def compiled(step, directory):
    """Returns the optimized program of a step, as `optimized_hlo.Program`."""
    source, result = (os.path.join(directory, name) for name in ("step.pb", "step.txt"))
    pathlib.Path(source).write_bytes(step.serialized_hlo(FLAGS.num_replicas))
    command = [
        FLAGS.compiler_python,
        str(_HERE / "compile_for_gpu.py"),
        FLAGS.target,
        source,
        result,
        str(FLAGS.num_replicas),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise UserError(
            "--compiler_python must be a Python with jax[cuda12] that compiles the step. Received: "
            f"{FLAGS.compiler_python}, which ended with {done.returncode}: {done.stderr[-2000:]}"
        )
    return optimized_hlo.Program.parse(pathlib.Path(result).read_text())


def main():
    workload = Workload.dense(*map(int, FLAGS.workload.split("x")))
    bandwidth = optimized_hlo.bandwidth(pathlib.Path(FLAGS.target).read_text())
    found = {}
    for ops in FLAGS.ops:
        optimizer = {
            "all_reduce_dtype": FLAGS.all_reduce_dtype,
            "all_reduce_bytes_per_pack": FLAGS.all_reduce_bytes_per_pack,
        }
        options = {"num_hidden_layers": FLAGS.num_hidden_layers}
        step = steps.Step(ops, workload, optimizer, **options)
        counts = step.executed_operations()
        found[ops] = {"operations": sum(counts.values()), "most": dict(counts.most_common(8))}
        if FLAGS.compiler_python:
            with tempfile.TemporaryDirectory() as directory:
                program = compiled(step, directory)
            found[ops] |= program.summary(bandwidth)
        print(f"\n{ops}")
        for name, value in found[ops].items():
            print(f"  {name}: {value}")
    if FLAGS.json:
        pathlib.Path(FLAGS.json).write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    tool.run(main)
