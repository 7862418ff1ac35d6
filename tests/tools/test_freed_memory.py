"""What a training frees is not returned to the kernel."""

import subprocess
import sys

from tests.conftest import REPOSITORY

PROGRAM = """
import ctypes, mmap, resource
from bert_tf.tools.common.freed_memory import keep_freed_memory

PAGES = 10_000
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p

def page_faults(buffers):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(buffers):
        buffer = ctypes.c_void_p(libc.malloc(PAGES * mmap.PAGESIZE))
        libc.memset(buffer, 1, PAGES * mmap.PAGESIZE)
        libc.free(buffer)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
print(page_faults(5) / PAGES)
"""


def test_a_buffer_is_used_again():
    """Five buffers, one after the other, have the page faults of one."""
    command = [sys.executable, "-c", PROGRAM]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert float(result.stdout) < 1.5
