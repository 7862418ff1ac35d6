"""A progress bar for a pipeline, which counts the results in its local `Workspace`."""

import contextlib
import os
import threading
from collections.abc import Iterator

from bert_tf.base.progress import progress_bar
from bert_tf.beam.file_access import is_remote
from bert_tf.beam.workspace import RESULT, Workspace

SECONDS_BETWEEN_COUNTS = 2.0


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
