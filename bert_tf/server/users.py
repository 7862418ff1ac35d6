"""Counts what is in use, so that it can be closed afterwards."""

import asyncio


class Users:
    """Counts the `with` blocks that are running; `none` is set while there is none."""

    def __init__(self):
        self._count = 0
        self.none = asyncio.Event()
        self.none.set()

    def __enter__(self):
        self._count += 1
        self.none.clear()

    def __exit__(self, *error):
        self._count -= 1
        if not self._count:
            self.none.set()
