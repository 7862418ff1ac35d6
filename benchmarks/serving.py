r"""Measures the latency and throughput of a running server at several concurrencies.

    bert-tf serve --model=out/model --model_name=reviews &
    python -m benchmarks.serving --url=http://127.0.0.1:8501/v1/models/reviews:predict \
        --text_file=reviews.txt

The server must have TensorFlow Serving's REST API. At each concurrency, the clients send one text
after another, each on its own connection, and wait for the answer, until --requests requests are
sent or --seconds are over. On the same machine as the server the results include the clients' work.
If the environment variable BERT_TF_API_KEY is set, the clients send it as their API key.
"""

import asyncio
import json
import time

import numpy as np
from absl import flags

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.server.api_keys import authorization
from bert_tf.tools.common import result_files, tool
from bert_tf.tools.common.checks import positive_integers

FLAGS = flags.FLAGS

_PERCENTILES = (50, 95, 99)

flags.DEFINE_string("url", None, "The URL of the model, which ends with :predict.")
flags.DEFINE_string("text_file", None, "A UTF-8 file with the texts to send in turn, one per line.")
flags.DEFINE_string(
    "input_name",
    None,
    "The name of the input, to send each text as an object. Default: send it as a string.",
)
flags.DEFINE_list(
    "concurrency", ["1", "2", "4", "8", "16", "32", "64"], "The numbers of clients to measure with."
)
flags.DEFINE_integer("requests", 2000, "Maximum number of requests per concurrency.", lower_bound=1)
flags.DEFINE_float("seconds", 20.0, "Maximum number of seconds per concurrency.", lower_bound=0.1)
flags.DEFINE_integer("warm_up", 50, "Number of requests before the measurement.", lower_bound=0)
flags.DEFINE_string(
    "json", None, "A JSON file to write all results to, without rounding. Default: none."
)


def request_bodies() -> list[bytes]:
    """Returns the body of a request for each text."""
    texts = [text for _, text in read_lines(FLAGS.text_file) if text.strip()]
    if not texts:
        raise UserError(f"{FLAGS.text_file} must be a file with texts. Received: no text")
    name = FLAGS.input_name
    return [json.dumps({"instances": [{name: text} if name else text]}).encode() for text in texts]


async def load(session, bodies, clients: int, requests: int, seconds: float) -> dict:
    """Sends requests from several clients at a time and returns the seconds of each answer."""
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
    """Runs `load` at each concurrency, and prints each row as soon as it is measured."""
    import aiohttp

    percentiles = "  ".join(f"p{p} ms".rjust(8) for p in _PERCENTILES)
    print(f"clients  requests  failed  {percentiles}  answers/s", flush=True)
    rows = []
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), headers=authorization()
    ) as session:
        await load(session, bodies, 1, FLAGS.warm_up, FLAGS.seconds)
        for count in clients:
            row = await load(session, bodies, count, FLAGS.requests, FLAGS.seconds)
            rows.append(row)
            milliseconds = np.percentile(row["latencies"], _PERCENTILES) * 1000
            percentiles = "  ".join(f"{value:8.1f}" for value in milliseconds)
            rate = row["requests"] / row["seconds"]
            print(
                f"{count:7}  {row['requests']:8}  {row['failed']:6}  {percentiles}  {rate:9.1f}",
                flush=True,
            )
    return rows


def main():
    counts = positive_integers("concurrency")
    bodies = request_bodies()
    aiohttp = require_package("aiohttp", "this program")
    try:
        rows = asyncio.run(measure(bodies, counts))
    except aiohttp.ClientError as error:
        raise UserError(
            f"--url must be a running server. Received: {FLAGS.url} ({error})"
        ) from None
    if FLAGS.json:
        result_files.write_json(FLAGS.json, rows)
    failed = sum(row["failed"] for row in rows)
    if failed:
        raise UserError(
            f"All requests must get the status 200. Received: {failed} others. Requests failed, so "
            "the results are not valid."
        )


if __name__ == "__main__":
    flags.mark_flags_as_required(["url", "text_file"])
    tool.run(main)
