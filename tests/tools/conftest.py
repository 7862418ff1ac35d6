"""What the tests of tools share."""

import pathlib

from tests.training import processes

HERE = pathlib.Path(__file__).parent


def pytest_collection_finish(session):
    """The fork server imports what tools need while the tests before them run."""
    if not session.config.option.collectonly:
        if any(HERE in item.path.parents for item in session.items):
            processes.start_server()
