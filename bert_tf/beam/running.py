"""Runs a pipeline, and again what is missing if a worker is lost; shows its progress.

Other runners repeat the work of a lost worker themselves. The DirectRunner (Beam 2.77) waits
forever for a worker that was killed. With several processes the pipeline is therefore started in a
process of its own, which ends when it loses a worker; the next attempt finds the work that is done
in the `Workspace`.
"""

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator

import apache_beam as beam
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from bert_tf.base.progress import progress_bar
from bert_tf.beam.file_access import is_remote
from bert_tf.beam.workspace import RESULT, Workspace
from bert_tf.errors import UserError, require

SECONDS_BETWEEN_COUNTS = 2.0
_WORKER_LOST = 75  # the exit status of a driver; EX_TEMPFAIL in <sysexits.h>
_LOST = "a worker process was lost, most often because memory ran out"
# The thread that waits for a worker process of the DirectRunner, in
# apache_beam/runners/portability/fn_api_runner/worker_handlers.py of Beam 2.77.
_WORKER_THREAD = "run_worker"


def run_pipeline(
    build: Callable[[beam.Pipeline], object],
    options: PipelineOptions,
    max_retries: int = 3,
    after_errors: bool = True,
) -> None:
    """Runs a pipeline to its end.

    Args:
        build: Adds the transforms to a pipeline. It must be picklable: a function of a module, or
            a `functools.partial` of one.
        options: Beam's options.
        max_retries: How many more times the pipeline is started after it failed. Its transforms
            skip what is done already, or do it again.
        after_errors: Whether it is also started again after an error in a transform, not only
            after a worker of the DirectRunner was lost.

    Raises:
        ConfigError: If `max_retries` is negative.
        UserError: If the last attempt failed too.
    """
    require(max_retries >= 0, "must be at least 0", max_retries=max_retries)
    attempt = functools.partial(_attempt_here, build, options)
    runner = options.view_as(StandardOptions).runner or "DirectRunner"
    mode = options.view_as(DirectOptions).direct_running_mode
    if runner == "DirectRunner" and mode == "multi_processing":
        attempt = functools.partial(_attempt_in_process, build, options)
    for left in range(max_retries, -1, -1):
        error = attempt()
        if error is None:
            return
        if not (after_errors or error == _LOST):
            raise UserError(error)
        if left:
            last_line = error.splitlines()[-1].rstrip(".")[:500]
            print(
                f"the pipeline was interrupted: {last_line}. What is missing is done again; "
                f"{left} more attempts.",
                file=sys.stderr,
                flush=True,
            )
    raise UserError(f"The pipeline must run to its end. Received, {max_retries + 1} times: {error}")


@contextlib.contextmanager
def show_progress(workspace: Workspace, title: str, total: int, *prefixes: str) -> Iterator[None]:
    """Shows, while the block runs, how many pieces of work with these prefixes are done.

    Runners of other machines show the progress in their own user interfaces.
    """
    if is_remote(workspace.directory):
        yield
        return
    ended = threading.Event()
    with progress_bar(desc=title, total=total) as bar:
        arguments = (workspace.directory, prefixes, bar, ended)
        thread = threading.Thread(target=_count, args=arguments, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _count(directory, prefixes, bar, ended) -> None:
    is_last = False
    while not is_last:
        is_last = ended.wait(SECONDS_BETWEEN_COUNTS)
        names = os.listdir(directory)
        done = sum(name.startswith(prefixes) and name.endswith(RESULT) for name in names)
        bar.update(done - bar.n)


def _attempt_here(build, options) -> str | None:
    """Runs the pipeline and returns the error, or None."""
    try:
        pipeline = beam.Pipeline(options=options)
        build(pipeline)
        pipeline.run().wait_until_finish()
    except Exception:
        return traceback.format_exc().strip()
    return None


def _attempt_in_process(build, options) -> str | None:
    # Not fork, which may deadlock in a process with TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    arguments = (build, options.get_all_options(drop_default=True), sender)
    driver = context.Process(target=_drive, args=arguments, daemon=True)
    driver.start()
    sender.close()
    try:
        try:
            error = receiver.recv()
        except EOFError:
            driver.join()
            if driver.exitcode == _WORKER_LOST:
                return _LOST
            return f"the driver ended with status {driver.exitcode}"
        driver.join()
        return error
    finally:
        driver.kill()  # its workers end when it is gone
        driver.join()
        receiver.close()


def _drive(build, options, sender) -> None:
    """Runs the pipeline in a process of its own and sends the error, or None."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the main process, which ends this
    threading.excepthook = _end_without_worker
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sender.send(_attempt_here(build, PipelineOptions([], **options)))
    sys.stdout.flush()
    os._exit(0)  # threads that wait for a worker may be left


def _end_without_worker(arguments) -> None:
    """Ends the driver when a worker has ended, because its thread then fails: an excepthook."""
    if arguments.thread is not None and arguments.thread.name == _WORKER_THREAD:
        os._exit(_WORKER_LOST)


def _end_with_parent() -> None:
    multiprocessing.parent_process().join()
    os._exit(1)
