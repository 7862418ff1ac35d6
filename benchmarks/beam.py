r"""Compares the time and memory of the Beam programs with those of the local tools.

    python -m benchmarks.beam --input_file=ordered.txt --vocab_file=vocab.txt
    python -m benchmarks.beam --input_file=ordered.txt --vocab_file=vocab.txt \
      --corpus_megabytes=5000 --rounds=1 --runs=beam_2

Pre-training data and a vocabulary are made of the text, which is repeated up to --corpus_megabytes
in files of 500 MB, by the local tool and by Beam with 1 and 2 processes, in turn. (The local tool
that learns a vocabulary has one process.) The outputs must
be the same, byte for byte. The memory is that of the program and all processes below it, pages that
they share counted once. The largest memory in each fifth of the run shows whether it grows.
"""

import filecmp
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

from bert_tf.errors import UserError
from bert_tf.tools.common import tool

from . import memory_use, report

FLAGS = flags.FLAGS

_FILE_BYTES = 500_000_000
_SECONDS_BETWEEN_SAMPLES = 0.5
_PARTS = 5  # of a run, whose memory is shown
_PROGRAMS = {
    "pretraining_data": ("create_pretraining_data", "beam_create_pretraining_data"),
    "vocabulary": ("build_vocab", "beam_build_vocab"),
}
_RUNS = ("local_1", "local_2", "beam_1", "beam_2")

flags.DEFINE_string("input_file", None, "A text file with one sentence per line.")
flags.DEFINE_string("vocab_file", None, "The vocabulary of the pre-training data.")
flags.DEFINE_integer(
    "corpus_megabytes",
    0,
    "The size of the corpus, in megabytes; the text is repeated. Default: the text once.",
    lower_bound=0,
)
flags.DEFINE_list("programs", list(_PROGRAMS), "What to make: pretraining_data, vocabulary.")
flags.DEFINE_list("runs", list(_RUNS), "How: by the local tool or by Beam, with 1 or 2 processes.")
flags.DEFINE_integer("rounds", 5, "The number of times that each is measured.", lower_bound=1)
flags.DEFINE_integer("dupe_factor", 5, "See create_pretraining_data.py.", lower_bound=1)
flags.DEFINE_integer("vocab_size", 8000, "See build_vocab.py.", lower_bound=1)
flags.DEFINE_string(
    "scratch_dir", None, "Where corpus and outputs are written. Default: the temporary directory."
)


def main():
    for name, known in (("programs", _PROGRAMS), ("runs", _RUNS)):
        unknown = set(FLAGS[name].value) - set(known)
        if unknown:
            raise UserError(f"--{name} must be of {', '.join(known)}. Received: {unknown}")
    for name in ("input_file", "vocab_file"):
        if not os.path.isfile(FLAGS[name].value):
            raise UserError(f"--{name} must be a file. Received: {FLAGS[name].value}")
    print(report.machine())
    with tempfile.TemporaryDirectory(dir=FLAGS.scratch_dir) as scratch:
        _repeat_text(os.path.join(scratch, "corpus"))
        for program in FLAGS.programs:
            _compare(program, scratch)


def _repeat_text(folder):
    """Writes the corpus: whole copies of the text, in files of about `_FILE_BYTES`."""
    os.makedirs(folder)
    with open(FLAGS.input_file, "rb") as file:
        text = file.read() + b"\n\n"
    copies = max(1, FLAGS.corpus_megabytes * 1_000_000 // len(text))
    in_a_file = max(1, _FILE_BYTES // len(text))
    for first in range(0, copies, in_a_file):
        with open(os.path.join(folder, f"{first:06}.txt"), "wb") as file:
            for _ in range(min(in_a_file, copies - first)):
                file.write(text)
    size = copies * len(text) / 1e6
    print(f"corpus: {size:.0f} MB, {copies} copies of {FLAGS.input_file}", flush=True)


def _compare(program, scratch):
    runs = [run for run in FLAGS.runs if (program, run) != ("vocabulary", "local_2")]
    taken = {run: [] for run in runs}
    expected = None
    for _ in range(FLAGS.rounds):
        for run in runs:
            folder = os.path.join(scratch, run)
            os.makedirs(folder)
            taken[run].append(_measure(_command(program, run, scratch, folder)))
            if expected is None:
                expected = os.path.join(scratch, "expected")
                shutil.move(folder, expected)
            else:
                names = os.listdir(expected)
                _, other, missing = filecmp.cmpfiles(expected, folder, names, shallow=False)
                if other or missing:
                    raise UserError(f"{run} must give the outputs of {runs[0]}: {other}")
                shutil.rmtree(folder)
    shutil.rmtree(expected)
    print(f"\n{program}, {FLAGS.rounds} rounds")
    medians = {run: statistics.median(t for t, _ in values) for run, values in taken.items()}
    for run, values in taken.items():
        seconds = sorted(seconds for seconds, _ in values)
        ratios = [
            f"{medians[run] / medians[other]:.2f} times {other}"
            for other in runs
            if run.startswith("beam") and other.startswith("local")
        ]
        fifths = [round(max(parts)) for parts in zip(*(parts for _, parts in values))]
        times = f"{medians[run]:.1f} s ({seconds[0]:.1f} to {seconds[-1]:.1f})"
        memory = f"peak {max(fifths)} MiB, in each fifth of the run {fifths}"
        print(f"{run:8} {', '.join([times, *ratios, memory])}", flush=True)


def _command(program, run, scratch, folder):
    is_local = run.startswith("local")
    name = _PROGRAMS[program][0 if is_local else 1]
    processes = run.rpartition("_")[2]
    corpus = os.path.join(scratch, "corpus")
    command = [sys.executable, "-m", f"bert_tf.tools.{name}"]
    command += [f"--input_file={corpus}/*.txt"]
    if not is_local:
        command.append(f"--direct_num_workers={processes}")
    if program == "vocabulary":
        return [*command, f"--output_file={folder}/vocab", f"--vocab_size={FLAGS.vocab_size}"]
    if is_local:
        command.append(f"--num_processes={processes}")
    return [
        *command,
        f"--output_file={folder}/0,{folder}/1",
        f"--vocab_file={FLAGS.vocab_file}",
        f"--dupe_factor={FLAGS.dupe_factor}",
    ]


def _measure(command):
    """Returns the seconds of a program, and its largest memory in each part of the run, in MiB."""
    samples = []
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=printed, stderr=printed)
        while True:
            samples.append(memory_use.tree_mib(process.pid))
            try:
                status = process.wait(_SECONDS_BETWEEN_SAMPLES)
                break
            except subprocess.TimeoutExpired:
                pass
        seconds = time.perf_counter() - start
        if status:
            printed.seek(0)
            message = printed.read().decode(errors="replace")[-2000:]
            raise UserError(f"{' '.join(command)} must succeed. Received: {message}")
    edges = [len(samples) * part // _PARTS for part in range(_PARTS + 1)]
    return seconds, [max(samples[a : max(b, a + 1)]) for a, b in zip(edges, edges[1:])]


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "vocab_file"])
    tool.run(main)
