r"""Compares the speed of bert-tf beam_predict with that of the local `encode`, on real sentences.

    python -m benchmarks.beam_predict --model_dir=.cache/materials/minilm \
        --input_file=train.txt --texts=20000

Every run embeds the first lines of the text, and a tenth of them, into Parquet files: a process
that calls `encode` with all cores, and the Beam program with 1 and 2 processes, in turn. The total
time has the start of Python and the loading of the model in it; the speed is that of the texts
between both numbers. The vectors must be the same to 1e-5. The memory is that of the program and of
all processes below it.
"""

import glob
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from bert_tf.errors import UserError
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tools.common import tool

from . import memory_use, report

FLAGS = flags.FLAGS
_RUNS = ("local", "beam_1", "beam_2")
_TOLERANCE = 1e-5
_SECONDS_BETWEEN_SAMPLES = 0.5
# The program of the local run: what a user would write.
_LOCAL = """
import sys
import bert_tf, pyarrow as pa, pyarrow.parquet as pq
model_dir, source, target = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    texts = file.read().split("\\n")[:-1]
vectors = bert_tf.BertSentenceEncoder.from_pretrained(model_dir).encode(texts)
vectors = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
pq.write_table(pa.table({"text": texts, "answer": vectors}), target)
"""

flags.DEFINE_string("model_dir", None, "The directory of a sentence encoder.")
flags.DEFINE_string("input_file", None, "A text file with one sentence per line.")
flags.DEFINE_integer("texts", 20_000, "The number of sentences.", lower_bound=10)
flags.DEFINE_list("runs", list(_RUNS), "What to measure: local, beam_1, beam_2.")
flags.DEFINE_integer("rounds", 5, "The number of times that each is measured.", lower_bound=1)


def main():
    unknown = set(FLAGS.runs) - set(_RUNS)
    if unknown:
        raise UserError(f"--runs must be of {', '.join(_RUNS)}. Received: {sorted(unknown)}")
    texts = [line for _, line in read_lines(FLAGS.input_file) if line.strip()][: FLAGS.texts]
    if len(texts) < FLAGS.texts:
        raise UserError(
            f"--input_file must have {FLAGS.texts} lines that are not empty. Received: {len(texts)}"
        )
    print(report.machine())
    taken = {(run, count): [] for run in FLAGS.runs for count in (len(texts) // 10, len(texts))}
    memory = dict.fromkeys(FLAGS.runs, 0.0)
    expected = {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(FLAGS.rounds):
            for run, count in taken:
                source = os.path.join(scratch, f"{count}.txt")
                with open(source, "w", encoding="utf-8") as file:
                    file.writelines(f"{text}\n" for text in texts[:count])
                seconds, peak = _measure(_command(run, source, os.path.join(scratch, "out")))
                taken[run, count].append(seconds)
                memory[run] = max(memory[run], peak)
                vectors = _take_vectors(scratch)
                expected.setdefault(count, vectors)
                error = np.abs(vectors - expected[count]).max()
                if error > _TOLERANCE:
                    raise UserError(
                        f"The vectors must be the same. Received: {run} {error:.1e} off"
                    )
    print("| run | seconds | of a tenth | texts/s | MiB |\n|---|---:|---:|---:|---:|")
    for run in FLAGS.runs:
        few, all_ = (statistics.median(taken[run, n]) for n in (len(texts) // 10, len(texts)))
        speed = (len(texts) - len(texts) // 10) / (all_ - few)
        print(f"| {run} | {all_:.1f} | {few:.1f} | {speed:.0f} | {memory[run]:.0f} |")


def _command(run, source, target):
    if run == "local":
        return [sys.executable, "-c", _LOCAL, FLAGS.model_dir, source, f"{target}.parquet"]
    processes = run.rpartition("_")[2]
    return [
        sys.executable,
        "-m",
        "bert_tf.tools.beam_predict",
        f"--model_dir={FLAGS.model_dir}",
        "--method=encode",
        f"--input_file={source}",
        f"--output_file={target}",
        "--output_format=parquet",
        f"--direct_num_workers={processes}",
    ]


def _take_vectors(scratch):
    """Returns the vectors of all output files, which are removed."""
    import pyarrow.parquet as pq

    paths = sorted(glob.glob(os.path.join(scratch, "out*.parquet")))
    vectors = [np.stack(pq.read_table(path)["answer"].to_numpy()) for path in paths]
    for path in paths:
        os.remove(path)
    return np.concatenate(vectors)


def _measure(command):
    """Returns the seconds of a program and its largest memory in MiB."""
    peak = 0.0
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, stderr=printed)
        while process.poll() is None:
            peak = max(peak, memory_use.tree_mib(process.pid))
            try:
                process.wait(_SECONDS_BETWEEN_SAMPLES)
            except subprocess.TimeoutExpired:
                continue
        seconds = time.perf_counter() - start
        if process.returncode:
            printed.seek(0)
            message = printed.read().decode(errors="replace")[-2000:]
            raise UserError(f"{' '.join(command)} must succeed. Received: {message}")
    return seconds, peak


if __name__ == "__main__":
    flags.mark_flags_as_required(["model_dir", "input_file"])
    tool.run(main)
