"""Builds and calls saved_model_reader.c, the program on TensorFlow's C API."""

import os
import pathlib
import subprocess

import numpy as np
import tensorflow as tf

_SOURCE = pathlib.Path(__file__).with_name("saved_model_reader.c")


class CReader:
    """The program, compiled against the installed TensorFlow.

    Args:
        directory: Where the program is put.
    """

    def __init__(self, directory: pathlib.Path):
        self._program = directory / "saved_model_reader"
        library = tf.sysconfig.get_lib()
        subprocess.run(
            [
                os.environ.get("CC", "gcc"),
                "-std=c11",
                "-Wall",
                "-Wextra",
                "-Werror",
                str(_SOURCE),
                f"-I{tf.sysconfig.get_include()}",
                f"{library}/libtensorflow_cc.so.2",
                f"{library}/libtensorflow_framework.so.2",
                f"-Wl,-rpath,{library}",
                "-o",
                str(self._program),
            ],
            check=True,
            capture_output=True,
            text=True,
        )

    def run(self, model, signature, inputs, libraries=()) -> dict[str, np.ndarray]:
        """The outputs of a signature, by name."""
        given = " ".join(word for name, value in inputs.items() for word in _words(name, value))
        result = self._call("run", model, signature, *libraries, given=given)
        return dict(_parsed(line) for line in result.stdout.splitlines())

    def fails(self, model, signature, inputs, libraries=()) -> str:
        """What the program says where it must fail."""
        given = " ".join(word for name, value in inputs.items() for word in _words(name, value))
        result = self._call("run", model, signature, *libraries, given=given, check=False)
        assert result.returncode == 1, result
        return result.stderr

    def without_kernel(self, operations, libraries=()) -> list[str]:
        """Those of the operations that no kernel is registered for."""
        return self._call("kernels", *libraries, given="\n".join(operations)).stdout.split()

    def _call(self, *arguments, given, check=True):
        return subprocess.run(
            [str(self._program), *map(str, arguments)],
            input=given,
            capture_output=True,
            text=True,
            check=check,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )


def _words(name, value):
    value = np.asarray(value)
    yield from (name, str(value.ndim), *map(str, value.shape))
    for item in value.ravel():
        if isinstance(item, (str, bytes)):
            yield "x" + (item if isinstance(item, bytes) else item.encode()).hex()
        else:
            yield str(int(item))


def _parsed(line):
    name, rank, *words = line.split()
    shape, values = [int(word) for word in words[: int(rank)]], words[int(rank) :]
    if any(word.startswith("x") for word in values):
        values = np.array([bytes.fromhex(word[1:]) for word in values] + [None], object)[:-1]
    else:
        values = np.array(values, np.float64)
    return name, values.reshape(shape)
