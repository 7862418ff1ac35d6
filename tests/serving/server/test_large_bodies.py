"""Whatever is sent within the default limits, the event loop answers others in between."""

import concurrent.futures
import os
import pathlib
import time

import pytest

from tests.serving.server.process import ServerProcess

_BYTES = 7_900_000
_SECONDS = 0.5  # of the server's processor time in which a probe is answered, where it once took 2


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux")
def test_health_is_answered_while_large_bodies_are_decoded(exported):
    """Measures processor time, because the machine may be busy with something else."""
    with ServerProcess(exported) as server, concurrent.futures.ThreadPoolExecutor() as clients:
        stat = pathlib.Path(f"/proc/{server.process.pid}/stat")

        def used():
            fields = stat.read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

        for part, status in ((b"[],", 413), (b"0.5,", 400)):
            body = b'{"instances": [%s0]}' % (part * (_BYTES // len(part)))
            answers = [clients.submit(server.predict, body) for _ in range(2)]
            while not all(answer.done() for answer in answers):
                before = used()
                assert server.json("GET", "/healthz") == (200, {"status": "alive"})
                assert used() - before < _SECONDS
                time.sleep(0.02)
            assert [answer.result()[0] for answer in answers] == [status] * 2
        assert server.predict({"instances": ["good"]})[0] == 200
