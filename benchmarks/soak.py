r"""Runs a server, `fit` and `predict` for hours, and prints what memory and descriptors they took.

    python -m benchmarks.soak --model=out/model --text_file=reviews.txt --minutes=120 \
        --output_file=soak.jsonl

--model is a trained text classifier. The server gets requests of many sizes, wrong ones, and
clients that disconnect, over REST and, if its packages are installed, gRPC; a new version of the
model replaces the one before it every --reload_seconds. `fit` gets other texts in each call.
`predict` gets other numbers of texts, and opens the model again after every hundred calls.

--output_file has a line for each look at the processes. The table compares the median of the first
fifth after a warm-up with that of the last fifth; the slope is that of a line through all looks
after the warm-up. The status is 1 if a process has ended or a right request was not answered.
"""

import asyncio
import collections
import contextlib
import gc
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
from absl import flags

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tools.common import tool

FLAGS = flags.FLAGS

flags.DEFINE_string("model", None, "The directory of a trained text classifier.")
flags.DEFINE_string("text_file", None, "A UTF-8 file with texts, one per line.")
flags.DEFINE_string("output_file", None, "The JSON lines to write.")
flags.DEFINE_float("minutes", 120.0, "How long the processes run.", lower_bound=0.5)
flags.DEFINE_float("reload_seconds", 120.0, "Seconds between new versions.", lower_bound=5.0)
flags.DEFINE_integer("clients", 4, "The number of REST clients at a time.", lower_bound=1)
flags.DEFINE_integer("seed", 0, "The seed of what is sent.")

_LOOK_SECONDS = 10.0
_WARM_UP = 0.15  # of the time, in which caches and graphs are made
_CALLS_PER_MODEL = 100
_PATIENCE = 300.0  # seconds for an answer, since other programs may have the processor
_WRONG = (  # bodies, and what a server must answer
    (b"{", 400),
    (b'{"instances": [1, 2]}', 400),
    (b'{"instances": []}', 400),
    (b'{"inputs": {"text": ["a"], "other": ["b"]}}', 400),
    (b'{"signature_name": "none", "instances": ["a"]}', 400),
)


def fit_forever(model_dir, texts, seed, count):
    """Trains the model with other texts in each call."""
    import bert_tf

    model, random = bert_tf.BertTextClassifier.from_pretrained(model_dir), _random(seed, 1)
    model.compile(bert_tf.training.AdamWeightDecay(1e-6))
    while True:
        chosen = random.choice(texts, random.integers(8, 65)).tolist()
        labels = random.integers(0, model.num_classes, len(chosen))
        limits = ({"batch_size": int(random.integers(4, 17))}, {"token_budget": 1024})
        model.fit(chosen, labels, verbose=0, **limits[random.integers(2)])
        count.value += 1


def predict_forever(model_dir, texts, seed, count):
    """Classifies other numbers of texts in each call, with a model that is opened again."""
    import bert_tf

    random = _random(seed, 2)
    while True:
        gc.collect()  # a Keras model refers to itself, so it ends only with a collection
        model = bert_tf.BertTextClassifier.from_pretrained(model_dir)
        for _ in range(_CALLS_PER_MODEL):
            chosen = random.choice(texts, random.integers(1, 33)).tolist()
            model.classify(chosen)
            count.value += 1


def _random(seed, stream):
    return np.random.default_rng([seed, stream])


class Server:
    """The server, its versions, and the clients that ask it."""

    def __init__(self, folder, texts):
        self.texts, self.random, self.answers = texts, _random(FLAGS.seed, 3), collections.Counter()
        self.unexpected = collections.Counter()
        self.versions, self.number = os.path.join(folder, "versions"), 0
        self.add_version()
        has_grpc = all(map(importlib.util.find_spec, ("grpc", "grpc_health", "tensorflow_serving")))
        self.log = os.path.join(folder, "server.log")
        command = [sys.executable, "-m", "bert_tf", "serve", f"--model={self.versions}", "--port=0"]
        command += ["--model_name=soak", *(["--grpc_port=0"] if has_grpc else [])]
        with open(self.log, "wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        self.port, self.grpc_port = self._ports(has_grpc)

    def _ports(self, has_grpc):
        while self.process.poll() is None:
            with open(self.log, encoding="utf-8") as file:
                text = file.read()
            if found := re.search(r"^Serving .*:(\d+)/", text, re.MULTILINE):
                grpc = re.search(r"^gRPC: .*:(\d+)$", text, re.MULTILINE)
                return int(found[1]), int(grpc[1]) if has_grpc else None
            time.sleep(0.1)
        raise UserError(f"The server must start. Received: {text[-2000:]}")

    def add_version(self):
        """Adds a version and removes the one before the last."""
        self.number += 1
        new = os.path.join(self.versions, f".{self.number}")
        shutil.copytree(FLAGS.model, new)
        os.rename(new, os.path.join(self.versions, str(self.number)))
        shutil.rmtree(os.path.join(self.versions, str(self.number - 2)), ignore_errors=True)

    def chosen(self):
        return self.random.choice(self.texts, self.random.integers(1, 17)).tolist()

    async def ask(self, session, end):
        """Sends one request after another, of which a tenth is wrong and some are not awaited."""
        url = f"http://127.0.0.1:{self.port}/v1/models/soak:predict"
        while time.monotonic() < end:
            body, expected = json.dumps({"instances": self.chosen()}).encode(), 200
            kind = self.random.random()
            if kind < 0.1:
                body, expected = _WRONG[self.random.integers(len(_WRONG))]
            if kind > 0.97:
                await self._disconnect(body)
                continue
            try:
                async with session.post(url, data=body) as response:
                    await response.read()
            except TimeoutError:
                self.unexpected["late"] += 1
                continue
            self.answers[response.status] += 1
            self.unexpected[response.status] += response.status != expected

    async def _disconnect(self, body):
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST /v1/models/soak:predict HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[: self.random.integers(len(body) + 1)])
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        self.answers["disconnected"] += 1

    async def ask_grpc(self, end):
        if self.grpc_port is None:
            return
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            while time.monotonic() < end:
                request = predict_pb2.PredictRequest(model_spec={"name": "soak"})
                request.inputs["text"].CopyFrom(tf.make_tensor_proto(self.chosen()))
                try:
                    await stub.Predict(request)
                    self.answers["gRPC"] += 1
                except grpc.aio.AioRpcError as error:
                    self.unexpected[error.code().name] += 1

    async def reload(self, end):
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, FLAGS.reload_seconds))
            await asyncio.to_thread(self.add_version)


def state_of(pid):
    """Returns the resident MiB, the descriptors and the threads of a process."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        resident = next(line for line in file if line.startswith("VmRSS:"))
    mib = int(resident.split()[1]) / 1024
    return mib, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


async def run(server, others):
    """Asks the server and looks at all processes until the end; returns what was seen."""
    import aiohttp

    pids = {"server": server.process.pid, **{name: p.pid for name, p in others.items()}}
    started, looks = time.monotonic(), []
    end = started + 60 * FLAGS.minutes

    async def look():
        with open(FLAGS.output_file, "w", encoding="utf-8") as file:
            while time.monotonic() < end:
                await asyncio.sleep(_LOOK_SECONDS)
                seen = {name: state_of(pid) for name, pid in pids.items()}
                looks.append((time.monotonic() - started, seen))
                answers = {str(status): count for status, count in server.answers.items()}
                line = {"seconds": looks[-1][0], **seen, "answers": answers}
                print(json.dumps(line), file=file, flush=True)

    timeout = aiohttp.ClientTimeout(total=_PATIENCE, sock_connect=_PATIENCE)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        clients = [server.ask(session, end) for _ in range(FLAGS.clients)]
        await asyncio.gather(*clients, server.ask_grpc(end), server.reload(end), look())
    return looks


def print_table(looks):
    """Prints what each process had after the warm-up and at the end."""
    seconds = np.array([second for second, _ in looks])
    kept = seconds >= _WARM_UP * seconds[-1]
    hours, fifth = seconds[kept] / 3600, max(1, int(np.sum(kept)) // 5)
    print("| process | | after the warm-up | at the end | per hour |\n|---|---|---:|---:|---:|")
    for name in looks[0][1]:
        values = np.array([seen[name] for _, seen in looks])[kept]  # [looks, 3]
        for index, what in enumerate(("MiB", "descriptors", "threads")):
            column = values[:, index]
            ends = np.median(column[:fifth]), np.median(column[-fifth:])
            slope = np.polyfit(hours, column, 1)[0] if len(column) > 1 else 0.0
            print(f"| {name} | {what} | {ends[0]:.0f} | {ends[1]:.0f} | {slope:+.1f} |")


def main():
    require_package("aiohttp", "this program")
    tool.require_output_file(FLAGS.output_file, "output_file", [FLAGS.text_file])
    texts = [text for _, text in read_lines(FLAGS.text_file) if text.strip()]
    spawn = multiprocessing.get_context("spawn")
    others, counts = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, texts)
        try:
            for name, forever in (("fit", fit_forever), ("predict", predict_forever)):
                counts[name] = spawn.Value("q", 0, lock=False)
                arguments = FLAGS.model, texts, FLAGS.seed, counts[name]
                others[name] = spawn.Process(target=forever, args=arguments, daemon=True)
                others[name].start()
            looks = asyncio.run(run(server, others))
            ended = [name for name, process in others.items() if not process.is_alive()]
        finally:
            server.process.terminate()
            status = server.process.wait(60)
            for process in others.values():
                process.kill()
    print_table(looks)
    print(f"{dict(server.answers)} answers, {server.number} versions")
    print(", ".join(f"{count.value} calls of {name}" for name, count in counts.items()))
    unexpected = {name: count for name, count in server.unexpected.items() if count}
    if ended or status or unexpected:
        raise UserError(
            "Processes must run to the end and answer as expected. Received: ended "
            f"{ended}, status {status} of the server, unexpected answers {unexpected}"
        )


if __name__ == "__main__":
    flags.mark_flags_as_required(["model", "text_file", "output_file"])
    tool.run(main)
