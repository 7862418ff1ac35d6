r"""Loads a running server and prints latency and throughput against concurrency.

    python tools/serve.py --model=out/model --model_name=reviews &
    python tools/benchmark_serving.py --url=http://127.0.0.1:8501/v1/models/reviews:predict \
        --text_file=reviews.txt

Any server with TensorFlow Serving's REST interface will do. At each concurrency that many clients,
each on a connection of its own, send one text after another and wait for the answer, until
--requests answers have come or --seconds are over. The clients are one process with aiohttp, which
takes processor time from a server on the same machine: the figures are those of both.
"""

import asyncio
import json
import time

import numpy as np
from absl import flags

from bert_tf import tool
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

_PERCENTILES = (50, 95, 99)

flags.DEFINE_string("url", None, "The address of :predict.")
flags.DEFINE_string("text_file", None, "UTF-8 texts, one a line, sent in turn.")
flags.DEFINE_string("input_name", None, "Send each text as an object with this name.")
flags.DEFINE_list("concurrency", ["1", "2", "4", "8", "16", "32", "64"], "Numbers of clients.")
flags.DEFINE_integer("requests", 2000, "The most requests at each.", lower_bound=1)
flags.DEFINE_float("seconds", 20.0, "The most time at each.", lower_bound=0.1)
flags.DEFINE_integer("warm_up", 50, "Requests before anything is measured.", lower_bound=0)
flags.DEFINE_string("json", None, "Write everything, unrounded, to this file.")


def concurrencies() -> list[int]:
    """--concurrency, checked."""
    if not all(item.isdigit() and int(item) for item in FLAGS.concurrency):
        raise UserError(
            f"--concurrency: positive numbers were expected. Received: "
            f"{','.join(FLAGS.concurrency)}"
        )
    return [int(item) for item in FLAGS.concurrency]


def request_bodies() -> list[bytes]:
    """A request for each text."""
    try:
        with open(FLAGS.text_file, encoding="utf-8") as file:
            texts = [line.rstrip("\n") for line in file if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--text_file: {error}") from None
    if not texts:
        raise UserError(f"--text_file: {FLAGS.text_file} holds no text")
    name = FLAGS.input_name
    return [json.dumps({"instances": [{name: text} if name else text]}).encode() for text in texts]


async def load(session, bodies, clients: int, requests: int, seconds: float) -> dict:
    """What `clients` clients measured together.

    Returns:
        `clients`, `requests`, `seconds`, `failed` and `latencies`, the seconds of each answer.
    """
    latencies, failed = [], 0
    numbers = iter(range(requests))
    end = time.perf_counter() + seconds

    async def client():
        nonlocal failed
        for number in numbers:
            started = time.perf_counter()
            if started > end:
                return
            async with session.post(FLAGS.url, data=bodies[number % len(bodies)]) as response:
                await response.read()
                failed += response.status != 200
            latencies.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return {
        "clients": clients,
        "requests": len(latencies),
        "seconds": time.perf_counter() - started,
        "failed": failed,
        "latencies": latencies,
    }


async def measure(bodies, clients: list[int]) -> list[dict]:
    """`load` at each concurrency; a row is printed as soon as it is there."""
    import aiohttp

    print(
        "clients  requests  failed  "
        + "  ".join(f"p{p} ms".rjust(8) for p in _PERCENTILES)
        + "  answers/s",
        flush=True,
    )
    rows = []
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        await load(session, bodies, 1, FLAGS.warm_up, FLAGS.seconds)
        for count in clients:
            row = await load(session, bodies, count, FLAGS.requests, FLAGS.seconds)
            rows.append(row)
            milliseconds = np.percentile(row["latencies"], _PERCENTILES) * 1000
            print(
                f"{count:7}  {row['requests']:8}  {row['failed']:6}  "
                + "  ".join(f"{value:8.1f}" for value in milliseconds)
                + f"  {row['requests'] / row['seconds']:9.1f}",
                flush=True,
            )
    return rows


def main():
    counts = concurrencies()
    bodies = request_bodies()
    try:
        import aiohttp
    except ImportError:
        raise UserError("This tool needs aiohttp: pip install 'bert-tf[serve]'") from None
    try:
        rows = asyncio.run(measure(bodies, counts))
    except aiohttp.ClientError as error:
        raise UserError(f"{FLAGS.url}: {error}") from None
    if FLAGS.json:
        with atomic_path(FLAGS.json) as path:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(rows, file)
    if any(row["failed"] for row in rows):
        raise UserError("Requests failed: the figures do not hold.")


if __name__ == "__main__":
    flags.mark_flags_as_required(["url", "text_file"])
    tool.run(main)
