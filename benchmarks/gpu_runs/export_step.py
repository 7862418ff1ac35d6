"""Exports the pre-training step of BERT-base for run 2, on a machine with TensorFlow and Bazel.

    python -m benchmarks.gpu_runs.export_step --output_dir=step

Writes for each of `native` and `reference` the program that TensorFlow gives to XLA for a GPU
(NAME.pb), as the lowerings of a GPU make it, and its parameters (NAME.json): their names, the
outputs that are their new values, and their values; large ones as a mean and a deviation. With
"_numbers" it is a step of two layers on ragged sequences without dropout, whose numbers are
compared. The foreign functions and what they need are copied there too; with --emulated, those that
run on a CPU.
"""

import argparse
import json
import os
import pathlib
import shutil

from . import session

TINY = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "max_position_embeddings": 64,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
_SMALL = 20_000  # numbers; larger parameters are drawn again where the step runs
HANDLERS = ("xla:_bert_tf_gpu_handlers.so", "kernels:_bert_tf_kernels.so")
EMULATED_HANDLERS = ("xla:_bert_tf_emulated_handlers.so",)


def export(ops: str, name: str, folder: pathlib.Path, workload, options: dict) -> None:
    """Writes the program and the parameters of a step."""
    import keras
    from tensorflow.compiler.xla.service import hlo_pb2

    from ..gpu_program import steps

    keras.backend.clear_session()  # names of variables start again
    keras.utils.set_random_seed(0)
    program, parameters = steps.Step(ops, workload, **options).program()
    module = hlo_pb2.HloModuleProto.FromString(program)
    new_values = {
        entry.parameter_number: entry.output_shape_index[0]
        for entry in module.input_output_alias.entries
    }
    described = []
    for number, (parameter, tensor) in enumerate(parameters):
        value = tensor.numpy()
        one = {"name": parameter, "dtype": value.dtype.name, "shape": value.shape}
        one["output"] = new_values.get(number)
        if value.size <= _SMALL:
            one["value"] = value.tolist()
        else:
            one |= {"mean": float(value.mean()), "deviation": float(value.std())}
        described.append(one)
    (folder / f"{name}.pb").write_bytes(program)
    (folder / f"{name}.json").write_text(json.dumps(described))
    print(f"{name}: {len(program):,} bytes, {len(described)} parameters", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", type=pathlib.Path, required=True)
    parser.add_argument("--num_hidden_layers", type=int, default=12)
    parser.add_argument("--workload", default="128x128", help="Batch size x length.")
    parser.add_argument("--tiny", action="store_true", help="A small model, for a rehearsal.")
    parser.add_argument("--emulated", action="store_true", help="Take the emulation's functions.")
    flags = parser.parse_args()
    flags.output_dir.mkdir(parents=True, exist_ok=True)
    handlers = EMULATED_HANDLERS if flags.emulated else HANDLERS
    import configure

    emulated, *files = session.built("xla:_bert_tf_emulated_gpu.so", *handlers)
    _, tensorflow = configure.find_tensorflow()
    for path in (*files, tensorflow / "libtensorflow_framework.so.2"):
        target = flags.output_dir / path.name
        target.unlink(missing_ok=True)
        shutil.copyfile(path, target)
    os.environ["BERT_TF_EMULATED_GPU"] = str(emulated)
    from tests.ops import gpu_emulation

    from ..workloads import Workload

    gpu_emulation.see_gpus()
    batch, length = map(int, flags.workload.split("x"))
    options = TINY if flags.tiny else {}
    numbers = {**options, "num_hidden_layers": 2, **NO_DROPOUT}
    for ops in ("native", "reference"):
        ragged = Workload.ragged(min(batch, 16), length)
        export(ops, f"{ops}_numbers", flags.output_dir, ragged, numbers)
        options = {**options, "num_hidden_layers": flags.num_hidden_layers}
        export(ops, ops, flags.output_dir, Workload.dense(batch, length), options)


if __name__ == "__main__":
    main()
