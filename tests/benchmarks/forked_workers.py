"""The benchmark's workers without a cold start each: they fork from the forked benchmark."""

import os
import runpy
import signal
import subprocess
import sys
import types


class ForkedWorker:
    """What `benchmarks.workers` uses of `subprocess.Popen`, for `python -m MODULE`."""

    def __init__(self, command, stdin, stdout, stderr, env, cwd):
        del stdin, stdout  # pipes, both
        requests, answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for new, old in enumerate((requests[0], answers[1], stderr.fileno())):
                os.dup2(old, new)
            os.closerange(3, 256)  # the pipes of other workers: they would never see their end
            sys.stdin = os.fdopen(0, closefd=False)
            os.chdir(cwd)
            os.environ.clear()
            os.environ.update(env)
            sys.argv = command[2:]
            runpy.run_module(command[2], run_name="__main__", alter_sys=True)
            os._exit(0)
        os.close(requests[0])
        os.close(answers[1])
        self.stdin = os.fdopen(requests[1], "wb")
        self.stdout = os.fdopen(answers[0], "rb")

    def wait(self, timeout=None):
        del timeout  # the benchmark's own is longer
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)


def fork_workers():
    """Called in the process of `python -m benchmarks` before it begins."""
    from benchmarks import limits, workers

    limits.MATMULS = ((64, 64, 64),)  # the speed does not matter, and large ones take seconds
    workers.subprocess = types.SimpleNamespace(
        Popen=ForkedWorker, PIPE=subprocess.PIPE, TimeoutExpired=subprocess.TimeoutExpired
    )
