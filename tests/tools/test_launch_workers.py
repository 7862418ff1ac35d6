"""tools/launch_workers.py with tests/tools/fake_worker.py, and when it starts workers again."""

import os
import pathlib
import re
import signal
import socket
import sys
import time

import pytest

from bert_tf.tools.common import worker_group, worker_supervisor
from tests.conftest import REPOSITORY
from tests.tools.running import run, start

FAKE = "tests/tools/fake_worker.py"
FAST = ("--num_workers=2", "--backoff_seconds=0")


def launch(folder, *starts, flags=()):
    environment = {"PYTHONPATH": str(REPOSITORY)}
    flags = [*FAST, *flags, "--", FAKE, folder, *starts]
    result = run("launch_workers", *flags, environment=environment)
    assert "Traceback" not in result.stderr, result.stderr
    return result


def wait_for(condition, process):
    end = time.monotonic() + 60
    while not condition():
        assert process.is_alive() and time.monotonic() < end, process.text()
        time.sleep(0.005)


def pids(folder, worker):
    """The process ids of all starts of a worker."""
    return [int(line) for line in (folder / f"pids-{worker}").read_text().splitlines()]


def is_running(pid):
    """Whether a process has not ended; one that nobody has waited for yet has."""
    stat = pathlib.Path("/proc", str(pid), "stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_worker_starts_all_again(tmp_path):
    result = launch(tmp_path, "wait,kill", "kill,wait", "ok,ok")
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    assert [line[:11] for line in lines] == ["[worker 0] "] * 3 + ["[worker 1] "] * 3
    clusters = [set(re.findall("localhost:[0-9]+", line)) for line in lines]
    assert clusters[:3] == clusters[3:] and all(len(cluster) == 2 for cluster in clusters)
    assert "worker 1 was ended by SIGKILL: starting all workers again in 0 s" in result.stderr
    assert "worker 0 was ended by SIGKILL" in result.stderr
    all_pids = [*pids(tmp_path, 0), *pids(tmp_path, 1)]
    assert len(all_pids) == 6 and not any(map(is_running, all_pids))


def test_output_in_files_and_a_full_disk(tmp_path):
    (tmp_path / "worker-1.log").symlink_to("/dev/full")
    result = launch(tmp_path, "wait,kill", "ok,ok", flags=[f"--log_dir={tmp_path}"])
    assert result.returncode == 0 and result.stdout == ""
    lines = (tmp_path / "worker-0.log").read_text().splitlines()
    assert [line[:12] for line in lines] == ["start 0 of 0", "start 1 of 0"]
    assert "worker-1.log cannot be written (No space left on device)" in result.stderr


@pytest.mark.parametrize(
    "starts,status,words",
    [
        (["wait,1"], 1, "worker 1 ended with status 1: a restart would not help"),
        (["75,last"], 1, "worker 1 ended with status 1: a restart would not help"),
        (["3,wait", "ok,ok"], 0, "worker 0 ended with status 3: starting"),
        (["ok,kill"], 137, "worker 1 was ended by SIGKILL: no progress after 1 restarts"),
    ],
)
def test_what_is_started_again(tmp_path, starts, status, words):
    result = launch(tmp_path, *starts, flags=["--max_restarts=1"])
    assert result.returncode == status and words in result.stderr, result.stderr


def test_a_hanging_worker_is_noticed(tmp_path):
    result = launch(tmp_path, "wait,hang", "ok,ok", flags=["--hang_timeout=0.2"])
    assert result.returncode == 0
    assert "hangs: no heartbeat for more than 0.2 s: starting all workers again" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_all_save(tmp_path, number):
    flags = [*FAST, "--", FAKE, tmp_path, "stop,stop"]
    process = start("launch_workers", *flags, output=tmp_path / "text")
    wait_for(lambda: process.text().count("] start 0 of ") == 2, process)
    os.kill(process.pid, number)
    assert process.wait() == 128 + number
    text = process.text()
    assert "[worker 0] saved" in text and "[worker 1] saved" in text and "restart" not in text


def test_a_second_signal_kills(tmp_path):
    process = start(
        "launch_workers", *FAST, "--", FAKE, tmp_path, "stop,ignore", output=tmp_path / "t"
    )
    wait_for(lambda: process.text().count("] start 0 of ") == 2, process)
    process.terminate()
    wait_for(lambda: "saved" in process.text(), process)
    assert is_running(*pids(tmp_path, 1))
    process.terminate()
    assert process.wait() == 143
    assert not is_running(*pids(tmp_path, 1))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux, for prctl")
def test_no_worker_outlives_a_killed_launcher(tmp_path):
    process = start(
        "launch_workers", *FAST, "--", FAKE, tmp_path, "ignore,wait", output=tmp_path / "t"
    )
    wait_for(lambda: process.text().count("] start 0 of ") == 2, process)
    process.kill()
    process.wait()
    end = time.monotonic() + 60
    while any(map(is_running, [*pids(tmp_path, 0), *pids(tmp_path, 1)])):
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize(
    "flags,words",
    [
        ([], "A program must follow `--`"),
        (["--", "absent.py"], "Received: absent.py"),
        (["--", "-m"], "The name of a module must follow `-m`"),
        (["--first_worker=1", "--", FAKE], "without --hosts"),
        (["--hosts=a:1,b", "--", FAKE], "Received: 'b'"),
        (["--hosts=a:1,b:65536", "--", FAKE], "Received: 'b:65536'"),
        (["--hosts=a:1,a:1", "--", FAKE], "Received: ['a:1'] several times"),
        (["--hosts=a:1,b:1", "--first_worker=1", "--", FAKE], "at most 2, the number of --hosts"),
        (["--hosts=localhost:BUSY,b:1", "--", FAKE], "must be free. Received: Address already in"),
        (["--final_statuses=x", "--", FAKE], "--final_statuses must be integers"),
        (["--log_dir=/dev/null/x", "--", FAKE], "--log_dir: /dev/null/x must be a directory"),
        (["--num_workers=0", "--", FAKE], "--num_workers=0"),
    ],
)
def test_wrong_flags_are_reported_before_any_work(tmp_path, flags, words):
    with socket.create_server(("", 0)) as busy:
        flags = [flag.replace("BUSY", str(busy.getsockname()[1])) for flag in flags]
        result = run("launch_workers", "--num_workers=2", *flags)
    assert result.returncode == 1 and words in result.stderr, result.stderr
    assert "Traceback" not in result.stderr and not list(tmp_path.iterdir())


def test_a_program_that_cannot_run(tmp_path):
    (tmp_path / "program").write_text("neither a script nor a binary")
    (tmp_path / "program").chmod(0o755)
    result = run("launch_workers", "--num_workers=2", "--", tmp_path / "program")
    assert result.returncode == 1
    assert result.stderr.startswith("error: The program after `--` must be one that can run.")


class Group:
    """In place of a `WorkerGroup`: one worker that ends with `status` after `seconds`.

    With the status None it hangs from the start.
    """

    def __init__(self, status, seconds, clock):
        self.end, self.begin, self.seconds, self.clock = (0, status), clock.now, seconds, clock

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def is_running(self):
        return self.end is not None

    def ended(self):
        self.clock.now += self.seconds
        end, self.end = self.end, None
        return [] if end[1] is None else [end]

    def longest_silence(self):
        return 0, self.clock.now - self.begin


class Clock:
    """Time that passes while something waits for it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


def supervise(ends, **policy):
    """Runs groups that end as (status, seconds). Returns the status and the waits in between."""
    clock = Clock()
    begun, ended = [], []

    def make_group():
        begun.append(clock.now)
        ended.append(clock.now + ends[len(begun) - 1][1])
        return Group(*ends[len(begun) - 1], clock)

    policy = worker_supervisor.RestartPolicy(**policy)
    status = worker_supervisor.Supervisor(make_group, policy, clock, clock.wait).run()
    assert len(begun) == len(ends)
    return status, [round(b - e, 3) for b, e in zip(begun[1:], ended)]


def test_waits_double_up_to_a_limit():
    ends = [(-9, 5)] * 7
    status, waits = supervise(ends, max_restarts=6, backoff=1, max_backoff=10)
    assert status == 137 and waits == [1, 2, 4, 8, 10, 10]
    assert worker_supervisor.RestartPolicy().wait_before(10_000) == 60.0


def test_progress_begins_the_count_again():
    ends = [(-9, 5), (-9, 5), (-9, 700), (-9, 5), (-9, 5)]
    status, waits = supervise(ends, max_restarts=2, progress_seconds=600)
    assert status == 137 and waits == [1, 2, 1, 2]
    assert supervise([(-9, 700)] * 20 + [(0, 1)], max_restarts=1)[0] == 0
    assert supervise([(-9, 700)], max_restarts=0)[0] == 137


def test_a_write_that_ends_early(capfd, monkeypatch):
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, text: write(file, text[:5]))
    worker_group.Output(1, None).write(b"one line\nand another\n")
    assert capfd.readouterr().out == "[worker 1] one line\n[worker 1] and another\n"


def test_a_signal_without_a_name(capsys):
    """Python names only the first and the last real-time signal of Linux."""
    assert supervise([(-40, 5)], max_restarts=0) == (168, [])
    assert "worker 0 was ended by signal 40" in capsys.readouterr().err


def test_a_hang_is_no_progress():
    ends = [(None, 700)] * 3
    status, waits = supervise(ends, max_restarts=2, hang_timeout=650)
    assert status == worker_supervisor.PEER_GONE and waits == [1, 2]
