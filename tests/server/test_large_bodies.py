"""Whatever is sent within the default limits, the event loop answers others in between."""

import concurrent.futures
import os
import pathlib
import time
import zlib

import pytest

from tests.server.process import ServerProcess

_BYTES = 7_900_000
_SECONDS = 0.5  # of the server's processor time in which a probe is answered, where it once took 2


def _one_gibibyte():
    """Returns zeros as a mebibyte of gzip data; the end is missing."""
    compressor, block = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16), bytes(1 << 20)
    first, other = (
        compressor.compress(block) + compressor.flush(zlib.Z_FULL_FLUSH) for _ in range(2)
    )
    return first + other * 1023


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux")
def test_health_is_answered_while_large_bodies_are_decoded(exported):
    """Measures processor time, because the machine may be busy with something else."""
    with ServerProcess(exported) as server, concurrent.futures.ThreadPoolExecutor() as clients:
        stat = pathlib.Path(f"/proc/{server.process.pid}/stat")

        def used():
            fields = stat.read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        lists, numbers = (
            b'{"instances": [%s0]}' % (part * (_BYTES // len(part))) for part in (b"[],", b"0.5,")
        )
        for body, headers, status, count in (
            (lists, {}, 413, 2),
            (numbers, {}, 400, 2),
            (_one_gibibyte(), {"Content-Encoding": "gzip"}, 413, 16),
        ):
            path = "/v1/models/tiny:predict"
            answers = [
                clients.submit(server.json, "POST", path, body, headers) for _ in range(count)
            ]
            while not all(answer.done() for answer in answers):
                before = used()
                assert server.json("GET", "/healthz") == (200, {"status": "alive"})
                assert used() - before < _SECONDS
                time.sleep(0.02)
            assert {answer.result()[0] for answer in answers} == {status}
        assert server.predict({"instances": ["good"]})[0] == 200
