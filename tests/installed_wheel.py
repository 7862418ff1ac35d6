"""Installs a wheel in fresh environments, without Bazel and compiler, and says what its ops do.

    make wheel
    python tests/installed_wheel.py dist/*.whl --tensorflow 2.19 2.20 2.21 --python python3.11

Each Python gets an environment for each minor version of TensorFlow. There the ops must load, and
agree with the reference implementation, also under XLA where that TensorFlow has its headers. The
table shows what was found; the exit status is 1 if any combination failed. An environment needs
about 2 GB while it is checked.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

# Runs in the fresh environment, where this repository is not.
CHECK = """
import json
import platform

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import ops
from bert_tf.ops import loading, native

random = np.random.default_rng(0)
x = tf.constant(random.normal(size=(33, 48)), tf.float32)
bias = tf.constant(random.normal(size=48), tf.float32)
qkv = tf.constant(random.normal(size=(33, 3, 3, 16)), tf.float32)
row_splits = tf.constant([0, 5, 5, 33])


def outputs():
    y = ops.fused_bias_gelu(x, bias)
    y = ops.fused_residual_layer_norm(y, x, bias, gamma=bias, beta=bias)
    return y, ops.varlen_attention(qkv, row_splits)


def error(function):
    with ops.backend("reference"):
        expected = outputs()
    return max(float(tf.reduce_max(tf.abs(a - b))) for a, b in zip(function(), expected))


backend = ops.active_backend()
with_xla = native.compiles_under_xla()
print(json.dumps({
    "python": platform.python_version(),
    "tensorflow": tf.__version__,
    "keras": __import__("keras").__version__,
    "backend": backend,
    "reason": loading.load().reason,
    "xla": with_xla,
    "error": error(outputs),
    "xla_error": error(tf.function(outputs, jit_compile=True)) if with_xla else 0,
}))
"""
TOLERANCE = 1e-5
TABLE_HEAD = """\
| Python | TensorFlow | Keras | ops | under XLA | largest difference from the reference |
|---|---|---|---|---|---|"""


def check(wheel: pathlib.Path, python: str, tensorflow: str) -> dict:
    """Installs the wheel in an environment of its own and returns what CHECK printed there."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([python, "-m", "venv", folder / "venv"], check=True)
        # Nothing but this environment on PATH.
        environment = {**os.environ, "PATH": str(folder / "venv" / "bin")}
        for name in ("PYTHONPATH", "BERT_TF_OPS"):
            environment.pop(name, None)
        own_python = folder / "venv" / "bin" / "python"
        packages = [f"{name}=={tensorflow}.*" for name in ("tensorflow", "tensorflow-text")]
        install = ["-m", "pip", "install", "--quiet", "--no-compile", "--only-binary=:all:"]
        for command in (
            [*install, wheel.resolve(), *packages],
            ["-m", "bert_tf", "--help"],
            ["-c", CHECK],
        ):
            result = subprocess.run(
                [own_python, *command], cwd=folder, env=environment, capture_output=True, text=True
            )
            if result.returncode != 0:
                return {"python": python, "tensorflow": tensorflow, "failed": result.stderr}
        return json.loads(result.stdout.splitlines()[-1])


def works(found: dict) -> bool:
    """Whether the ops were loaded and computed what the reference computes."""
    return "failed" not in found and (
        found["backend"] == "native" and max(found["error"], found["xla_error"]) < TOLERANCE
    )


def row(found: dict) -> str:
    """The line of the table, with the reason below it where the ops were not used."""
    if "failed" in found:
        return f"| {found['python']} | {found['tensorflow']} | | FAILED | | |\n{found['failed']}"
    cells = [
        *(found[name] for name in ("python", "tensorflow", "keras", "backend")),
        "yes" if found["xla"] else "reference",
        f"{max(found['error'], found['xla_error']):.1e}",
    ]
    line = f"| {' | '.join(cells)} |"
    return line if works(found) else f"{line}\n{found['reason']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--tensorflow", nargs="+", required=True, help="minor versions: 2.21")
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters")
    arguments = parser.parse_args()
    print(TABLE_HEAD, flush=True)
    found = []
    for python in arguments.python:
        for tensorflow in arguments.tensorflow:
            found.append(check(arguments.wheel, python, tensorflow))
            print(row(found[-1]), flush=True)
    sys.exit(not all(map(works, found)))


if __name__ == "__main__":
    main()
