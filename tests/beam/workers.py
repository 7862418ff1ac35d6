"""The worker processes of Beam's DirectRunner."""

import pathlib


def workers_of(pid):
    """Returns the worker processes below a process."""
    found = []
    for path in pathlib.Path("/proc", str(pid), "task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            command = pathlib.Path("/proc", str(child), "cmdline").read_bytes().split(b"\0")
            is_worker = b"apache_beam.runners.worker.sdk_worker_main" in command
            found += [child] if is_worker else workers_of(child)
    return found
