"""Disturbs pre-training on two workers and compares it with a run that nobody disturbs.

    python -m tests.tools.worker_faults --fault=kill --kills=20 --seed=0

tools/launch_workers.py starts two workers of tools/run_pretraining.py: a tiny BERT, real text. The
faults (default: all of them, one after the other):

    kill         SIGKILL to a random worker at random steps, every fourth time while it starts
    coordinator  the same to worker 0, which coordinates the workers and writes the checkpoints
    machines     the same with one launcher for each worker and fixed ports, as on two machines
    hang         SIGSTOP to workers 0 and 1 in turn at random steps; ports still accept connections
    stop         SIGTERM to the launcher at a random step; then the same command is run again
    full_disk    no room for one of the first checkpoints, later there is (needs root: it mounts)
    slow         worker 1 runs for a fifth of the time, as on a machine that is slower

It prints a table in Markdown, and ends with 1 unless all weights are equal, bit for bit.
"""

import argparse
import dataclasses
import itertools
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from safetensors.numpy import load_file

from bert_tf.training.callbacks import read_json_lines
from bert_tf.training.checkpointing.checkpoint_files import checkpoint_path, checkpoint_steps
from tests.conftest import MATERIALS, REPOSITORY
from tests.tools.running import free_ports

STEPS, SAVE_EVERY, LENGTH = 200, 10, 32
PATIENCE = 1800.0  # seconds before this program gives up on a run
START_SECONDS = 8.0  # within which a worker is killed while it starts
FAULTS = {
    "kill": 20,
    "coordinator": 5,
    "machines": 3,
    "hang": 2,
    "stop": 1,
    "full_disk": 1,
    "slow": 1,
}
FLAGS = (
    "--distribution_strategy=multi_worker_mirrored",
    "--do_train",
    f"--max_seq_length={LENGTH}",
    "--max_predictions_per_seq=5",
    "--train_batch_size=8",
    "--learning_rate=1e-3",
    f"--num_train_steps={STEPS}",
    "--num_warmup_steps=20",
    f"--save_checkpoints_steps={SAVE_EVERY}",
    "--log_steps=1",
)


@dataclasses.dataclass
class Outcome:
    """A line of the table."""

    fault: str
    moments: list[str]
    restarts: int
    resumed: list[str]
    status: int | str
    problems: list[str]

    def is_wrong(self):
        """Whether the weights are not those of the undisturbed run."""
        return bool(self.problems) or not str(self.status).endswith("0")

    def __str__(self):
        cells = [
            self.fault,
            ", ".join(self.moments),
            str(self.restarts),
            ", ".join(self.resumed) or "none",
            str(self.status),
            "; ".join(self.problems) or "equal, bit for bit",
        ]
        return f"| {' | '.join(cells)} |"


HEADER = (
    "| fault | moments | restarts | resumed from steps | exit status | weights and files |\n"
    "|---|---|---|---|---|---|"
)


def python(*arguments, **options):
    """Starts Python in the repository."""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], cwd=REPOSITORY, env=environment, **options
    )


def prepare(folder):
    """Writes a real text, its vocabulary and a tiny network's configuration."""
    whole, text, vocabulary = (folder / name for name in ("whole.txt", "text.txt", "vocab.txt"))

    def run(module, *flags):
        output = subprocess.PIPE
        process = python("-m", module, *flags, stdout=output, stderr=subprocess.STDOUT)
        printed = process.communicate()[0]
        if process.returncode:
            raise SystemExit(
                f"{module} ended with status {process.returncode}:\n{printed.decode()}"
            )

    run(
        "research.prepare_ordered_text",
        f"--input_dir={MATERIALS}/ordered_text",
        f"--output_file={whole}",
    )
    with open(whole, encoding="utf-8") as file:  # a tenth is enough, and quicker to read at a start
        text.write_text("".join(itertools.islice(file, 3000)), encoding="utf-8")
    flags = (f"--input_file={text}", f"--output_file={vocabulary}", "--vocab_size=1000")
    run("bert_tf.tools.build_vocab", *flags)
    config = {
        "vocab_size": len(vocabulary.read_text(encoding="utf-8").splitlines()),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": LENGTH,
    }
    (folder / "config.json").write_text(json.dumps(config))


class Run:
    """Two workers under one launcher, or under one each. Use it in `with`.

    Args:
        folder: That of `prepare`.
        output: The output directory of the run.
        logs: The folder of what launchers and workers print.
        flags: Of the launcher.
        machines: The number of launchers.
    """

    def __init__(self, folder, output, logs, flags=(), machines=1):
        self.output, self.logs = output, logs
        logs.mkdir(exist_ok=True)
        hosts = ",".join(f"localhost:{port}" for port in free_ports(2))
        command = ["tools/run_pretraining.py", f"--input_file={folder}/text.txt", *FLAGS]
        command += [f"--vocab_file={folder}/vocab.txt", f"--bert_config_file={folder}/config.json"]
        self._launchers = []
        for machine in range(machines):
            share = [f"--hosts={hosts}", f"--first_worker={machine}"] if machines > 1 else []
            with open(logs / f"launcher-{machine}.log", "ab") as file:
                self._launchers.append(
                    python(
                        "tools/launch_workers.py",
                        f"--num_workers={2 // machines}",
                        f"--log_dir={logs}",
                        "--backoff_seconds=0.1",
                        "--max_backoff_seconds=1",
                        *share,
                        *flags,
                        "--",
                        *command,
                        f"--output_dir={output}",
                        stderr=file,
                    )
                )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for launcher in self._launchers:
            launcher.kill()
            launcher.wait()

    def text(self, name):
        """What has been printed into the logs whose names begin with `name`."""
        paths = sorted(self.logs.glob(f"{name}*.log"))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)

    def pids(self):
        """The process ids of the newest start of both workers."""
        found = re.findall(r"worker (\d) is process (\d+)", self.text("launcher"))
        return {int(worker): int(pid) for worker, pid in found}

    def outcome(self, fault, moments, undisturbed):
        """Waits for the end of the run and compares it with another run's output directory."""
        status = self.wait()
        restarts = self.text("launcher").count("starting all workers again")
        resumed = re.findall(r"Resuming from \S*ckpt-(\d+)", self.text("worker-0"))
        problems = differences(undisturbed, self.output)
        return Outcome(fault, moments, restarts, resumed, status, problems)

    def step(self, since=0.0):
        """The newest step in the log that was written after the time `since`."""
        log = self.output / "log.jsonl"
        lines = read_json_lines(log) if log.exists() else []
        return lines[-1]["step"] if lines and lines[-1]["time"] >= since else 0

    def wait_for(self, condition):
        end = time.monotonic() + PATIENCE
        while not condition():
            statuses = [launcher.poll() for launcher in self._launchers]
            if statuses.count(None) < len(statuses) or time.monotonic() > end:
                raise SystemExit(f"the run ended too early ({statuses}):\n{self.text('')[-3000:]}")
            time.sleep(0.005)

    def terminate(self):
        """Asks the workers to stop. Returns the exit status."""
        for launcher in self._launchers:
            launcher.terminate()
        return self.wait()

    def wait(self):
        """The exit status of the launchers, the largest one."""
        return max(launcher.wait(PATIENCE) for launcher in self._launchers)


def disturb(run, workers, number, rng, count):
    """Sends a signal `count` times, each time to one of `workers`. Returns the moments."""
    moments, old = [], {}
    for place, step in enumerate(sorted(rng.uniform(1, STEPS * 0.8) for _ in range(count))):
        run.wait_for(lambda: {w for w, pid in run.pids().items() if pid != old.get(w)} == {0, 1})
        began, old = time.time(), run.pids()
        if number == signal.SIGKILL and place % 4 == 3:
            seconds = rng.uniform(0, START_SECONDS)
            time.sleep(seconds)
            moments.append(f"{seconds:.1f} s after a start")
        else:
            run.wait_for(lambda: run.step(began) >= step)
            time.sleep(rng.uniform(0, 0.05))  # so that some hit a checkpoint that is being written
            moments.append(str(run.step()))
        worker = rng.choice(workers) if number == signal.SIGKILL else workers[place % len(workers)]
        os.kill(old[worker], number)
    return moments


def differences(expected, received):
    """What differs between the outputs of two runs, and what should not be there."""
    if checkpoint_steps(received / "checkpoints")[-1:] != [STEPS]:
        return [f"ended at {checkpoint_steps(received / 'checkpoints')[-1:]}"]
    found = []
    state = os.path.relpath(checkpoint_path(expected / "checkpoints", STEPS), expected)
    for name in ("model/model.safetensors", f"{state}/variables.safetensors"):
        tensors = [load_file(path / name) for path in (expected, received)]
        bits = [{n: t.tobytes() for n, t in values.items()} for values in tensors]
        others = {n for n in bits[0].keys() | bits[1].keys() if bits[0].get(n) != bits[1].get(n)}
        if others:
            found.append(f"{name} differs in {sorted(others)[:3]}")
    losses = [
        [(line["step"], line["loss"]) for line in read_json_lines(path / "log.jsonl")]
        for path in (expected, received)
    ]
    if losses[0] != losses[1]:
        found.append("log.jsonl differs")
    hidden = [path.name for path in received.rglob(".*")]
    if hidden:
        found.append(f"left over: {hidden}")
    names = [{path.name for path in (p / "checkpoints").iterdir()} for p in (expected, received)]
    if names[0] - names[1]:
        found.append(f"missing: {sorted(names[0] - names[1])}")
    return found


def end_by_signals(folder, undisturbed, fault, count, seed):
    """The faults that are signals: `kill`, `coordinator`, `machines` and `hang`."""
    number = signal.SIGSTOP if fault == "hang" else signal.SIGKILL
    flags = [f"--max_restarts={3 * count}", "--hang_timeout=120"]
    machines = 2 if fault == "machines" else 1
    with Run(folder, folder / fault, folder / f"{fault}-logs", flags, machines) as run:
        workers = [0] if fault == "coordinator" else [0, 1]
        moments = disturb(run, workers, number, random.Random(seed), count)
        return run.outcome(fault, moments, undisturbed)


def stop_and_go_on(folder, undisturbed, seed):
    """The launcher is asked to stop, and the command run again."""
    output, logs = folder / "stop", folder / "stop-logs"
    step = random.Random(seed).uniform(1, STEPS * 0.8)
    with Run(folder, output, logs) as run:
        run.wait_for(lambda: run.step() >= step)
        status = run.terminate()
        step = run.step()
    saved = checkpoint_steps(output / "checkpoints")[-1:]
    with Run(folder, output, logs) as run:
        outcome = run.outcome("stop", [str(step)], undisturbed)
    if status != 143 or saved != [step]:
        outcome.problems.append(f"it ended with status {status}, saved {saved}, after step {step}")
    return dataclasses.replace(outcome, status=f"{status}, then {outcome.status}")


def slow_down(folder, undisturbed):
    """Worker 1 runs for 50 ms of each 250 ms, from its first step on."""
    with Run(folder, folder / "slow", folder / "slow-logs") as run:
        run.wait_for(lambda: run.step() >= 1)
        pid = run.pids()[1]
        while run.step() < STEPS - SAVE_EVERY:
            for number, seconds in ((signal.SIGSTOP, 0.2), (signal.SIGCONT, 0.05)):
                os.kill(pid, number)
                time.sleep(seconds)
        return run.outcome("slow", [f"steps 1 to {STEPS - SAVE_EVERY}"], undisturbed)


def can_mount(folder):
    """Whether this process may mount a disk."""
    place = folder / "mount"
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place]
    if subprocess.run(mount, capture_output=True).returncode:
        return False
    return subprocess.run(["umount", place]).returncode == 0


def fill_disk(folder, undisturbed):
    """The disk has room for two checkpoints; then it is enlarged and the command run again."""
    disk, logs = folder / "full_disk", folder / "full_disk-logs"
    disk.mkdir()
    checkpoint = pathlib.Path(checkpoint_path(undisturbed / "checkpoints", STEPS))
    size = int(2.7 * sum(path.stat().st_size for path in checkpoint.iterdir()))
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)
    try:
        with Run(folder, disk / "out", logs) as run:
            status, restarts = run.wait(), run.text("launcher").count("again")
            error = re.findall(r"error: .*No space left.*", run.text("worker"))
        steps = checkpoint_steps(disk / "out" / "checkpoints")
        hidden = [path.name for path in disk.rglob(".*")]
        subprocess.run(["mount", "-o", "remount,size=256m", disk], check=True)
        with Run(folder, disk / "out", logs) as run:
            outcome = run.outcome("full_disk", [f"after step {steps[-1:]}"], undisturbed)
    finally:
        subprocess.run(["umount", disk], check=True)
    if status != 1 or restarts or not error or not steps or hidden:
        problem = f"status {status}, {restarts} restarts, {error}, steps {steps}, {hidden}"
        outcome.problems.append(f"when it was full: {problem}")
    return dataclasses.replace(outcome, status=f"{status}, then {outcome.status}")


def outcome_of(folder, undisturbed, fault, count, seed):
    if fault == "full_disk":
        return fill_disk(folder, undisturbed)
    if fault == "stop":
        return stop_and_go_on(folder, undisturbed, seed)
    if fault == "slow":
        return slow_down(folder, undisturbed)
    return end_by_signals(folder, undisturbed, fault, count, seed)


def run_undisturbed(folder):
    """Prepares the folder. Returns the output directory of a run that nobody disturbs."""
    prepare(folder)
    with Run(folder, folder / "undisturbed", folder / "undisturbed-logs") as run:
        if run.wait():
            raise SystemExit(f"the undisturbed run failed:\n{run.text('')[-3000:]}")
    return folder / "undisturbed"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fault", choices=FAULTS, action="append", help="may be given repeatedly")
    parser.add_argument(
        "--kills", type=int, help="the number of signals; not of full_disk and slow"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faults = arguments.fault or list(FAULTS)
    failed = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "full_disk" in faults and not can_mount(folder):
            parser.error("the fault full_disk needs root, to mount a small disk")
        print(HEADER, flush=True)
        undisturbed = run_undisturbed(folder)
        for fault in faults:
            count = arguments.kills or FAULTS[fault]
            outcome = outcome_of(folder, undisturbed, fault, count, arguments.seed)
            print(outcome, flush=True)
            failed = failed or outcome.is_wrong()
    sys.exit(failed)


if __name__ == "__main__":
    main()
