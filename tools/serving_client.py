r"""Asks a TensorFlow Serving server, or tools/serve.py, about texts.

    python tools/serving_client.py --model=reviews --text="a waste of time" --text="wonderful"
    python tools/serving_client.py --server=localhost:8500 --protocol=grpc --model=answers \
        --question="Who wrote it?" --context="Ada Lovelace wrote the first program."

Prints what the model says about each text, one JSON object a line. The inputs are the flags that
are given: --text; --text and --pair; --question and --context; each may be repeated.

REST needs no package beside Python. gRPC needs tensorflow-serving-api, which brings TensorFlow:
pip install 'bert-tf[serving]'.

Every try ends at --deadline, which is for all tries together. A try is repeated where the server
could not be reached or was too busy, after a pause that doubles and is drawn at random, so that
clients that failed together do not come back together. Predictions change nothing in the server,
so asking twice does no harm.
"""

import http.client
import json
import math
import queue
import random
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from absl import flags

from bert_tf import tool
from bert_tf.errors import UserError

FLAGS = flags.FLAGS

INPUTS = ("text", "pair", "question", "context")
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
LARGEST_ANSWER = 1 << 30  # bytes
# Too many requests; bad gateway; unavailable (TF Serving: its queue is full, or the model is not
# loaded yet); gateway time-out.
BUSY_STATUSES = (429, 502, 503, 504)

flags.DEFINE_string(
    "server", None, "Address; default http://localhost:8501 for REST, localhost:8500 for gRPC."
)
flags.DEFINE_enum("protocol", "rest", ["rest", "grpc"], "How to ask.")
flags.DEFINE_string("model", None, "The model's name in the server.")
flags.DEFINE_integer("version", None, "The model's version; default: the newest.", lower_bound=1)
flags.DEFINE_string("signature", "serving_default", "The signature.")
flags.DEFINE_multi_string("text", None, "A text, or the first of a pair.")
flags.DEFINE_multi_string("pair", None, "The second text of a pair.")
flags.DEFINE_multi_string("question", None, "A question.")
flags.DEFINE_multi_string("context", None, "The text that answers the question.")
flags.DEFINE_float("deadline", 10.0, "Seconds for all tries together.", lower_bound=0.001)
flags.DEFINE_integer("retries", 4, "How often to try again.", lower_bound=0)


class ServerBusy(Exception):
    """The server could not be reached or said that it is too busy.

    Args:
        reason: What happened.
        pause: Seconds that the server asks to wait, if it said so.
    """

    def __init__(self, reason: str, pause: float | None = None):
        super().__init__(reason)
        self.pause = pause


def with_retries(ask, deadline: float, retries: int, pauses=random):
    """What `ask` returns, tried again while the server is busy.

    Args:
        ask: Takes the seconds that are left and returns the answer.
        deadline: Seconds for all tries and pauses together.
        retries: How often to try again.
        pauses: The source of the pauses' randomness.

    Raises:
        UserError: If the deadline passes or the last try fails; with the last reason.
    """
    end = time.monotonic() + deadline
    longest = FIRST_PAUSE_S
    for tries in range(1, retries + 2):
        try:
            return _within(max(0.001, end - time.monotonic()), ask)
        except ServerBusy as error:
            reason, asked = str(error), error.pause
        pause = asked if asked is not None else pauses.uniform(0, longest)
        longest = min(2 * longest, LONGEST_PAUSE_S)
        if tries > retries or time.monotonic() + pause >= end:
            break
        time.sleep(pause)
    count = "1 try" if tries == 1 else f"{tries} tries"
    raise UserError(
        f"No answer after {count} in {deadline:g} s (--deadline, --retries). "
        f"The last one said: {reason}"
    )


def _within(seconds: float, ask):
    """What `ask(seconds)` returns, or raises.

    A socket's time-out is for each of its reads: an answer that comes byte by byte would never end.

    Raises:
        ServerBusy: If it takes longer; a daemon thread is left with it.
    """
    answers = queue.SimpleQueue()

    def run():
        try:
            answers.put((ask(seconds), None))
        except BaseException as error:  # for the thread that waits
            answers.put((None, error))

    threading.Thread(target=run, daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise ServerBusy("the answer did not end in time") from None
    if error is not None:
        raise error
    return answer


def ask_rest(
    server: str,
    model: str,
    version: int | None,
    signature: str,
    inputs: dict[str, list[str]],
    timeout: float,
) -> list:
    """One try over REST: a prediction a row.

    Args:
        server: "http://host:port".
        model: The model's name.
        version: Its version, or None.
        signature: The signature's name.
        inputs: Lists of strings by the inputs' names.
        timeout: Seconds.

    Raises:
        ServerBusy: If it is worth trying again.
        UserError: If the server refuses the request.
    """
    path = f"/v1/models/{urllib.parse.quote(model, safe='')}"
    path += "" if version is None else f"/versions/{version}"
    rows = [dict(zip(inputs, row)) for row in zip(*inputs.values())]
    body = json.dumps({"signature_name": signature, "instances": rows}).encode()
    request = urllib.request.Request(
        f"{server.rstrip('/')}{path}:predict", body, {"Content-Type": "application/json"}
    )
    try:
        status, headers, text = _exchange(request, timeout)
    except (OSError, http.client.HTTPException) as error:
        # No connection, one that broke, an answer that was cut short, or a time-out.
        raise ServerBusy(f"{server}: {error}") from None
    if status != http.HTTPStatus.OK:
        reason = f"HTTP {status}: {_message(text)}"
        if status not in BUSY_STATUSES:
            raise UserError(f"{server} refused the request: {reason}")
        raise ServerBusy(reason, _seconds(headers.get("Retry-After")))
    try:
        predictions = json.loads(text)["predictions"]
    except (ValueError, KeyError, TypeError, RecursionError):
        predictions = None
    if not isinstance(predictions, list):
        raise UserError(
            f"{server}: expected TensorFlow Serving's JSON. Is it such a server? "
            f"Received: {text[:200].decode('utf-8', errors='replace')!r}"
        )
    return predictions


def _exchange(request, timeout):
    """Status, headers and body of an answer, whatever the status is."""
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        text = response.read(LARGEST_ANSWER + 1)
        if len(text) > LARGEST_ANSWER:
            raise UserError(f"An answer of at most {LARGEST_ANSWER} bytes was expected.")
        announced = response.headers.get("Content-Length", "")
        # With a size to read, Python does not notice this itself.
        if announced.isascii() and announced.isdigit() and len(text) < int(announced[:20]):
            raise http.client.IncompleteRead(text, int(announced[:20]) - len(text))
        return response.status, response.headers, text


def _seconds(after: str | None) -> float | None:
    """The seconds of a `Retry-After`, or None: it may be a date, or anything."""
    try:
        seconds = float(after or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def ask_grpc(
    server: str,
    model: str,
    version: int | None,
    signature: str,
    inputs: dict[str, list[str]],
    timeout: float,
) -> list:
    """One try over gRPC; `server` is "host:port". See `ask_rest`."""
    try:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
    except ImportError as error:
        raise UserError(
            f"gRPC needs tensorflow-serving-api. Received: {error}. "
            "Install it with: pip install 'bert-tf[serving]', or use --protocol=rest."
        ) from None
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = model, signature
    if version is not None:
        request.model_spec.version.value = version
    for name, texts in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(texts, dtype=tf.string))
    try:
        with grpc.insecure_channel(server) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            response = stub.Predict(request, timeout=timeout)
    except grpc.RpcError as error:
        reason = f"{error.code().name}: {error.details()}"
        busy = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
        if error.code() in busy or error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            raise ServerBusy(reason) from None
        raise UserError(f"{server} refused the request: {reason}") from None
    outputs = {name: tf.make_ndarray(value) for name, value in response.outputs.items()}
    count = len(next(iter(inputs.values())))
    return [
        {name: _plain(values[row].tolist()) for name, values in sorted(outputs.items())}
        for row in range(count)
    ]


def _plain(value):
    """Bytes, in lists too, as the strings that JSON has."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value


def _message(body: bytes) -> str:
    """What TensorFlow Serving says in `error`, or the body's beginning."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200].decode("utf-8", errors="replace")


def given_inputs() -> dict[str, list[str]]:
    """The inputs of the flags, by name.

    Raises:
        UserError: If none is given, or not as many of each.
    """
    inputs = {name: FLAGS[name].value for name in INPUTS if FLAGS[name].value}
    if not inputs:
        raise UserError("--text, --text and --pair, or --question and --context was expected.")
    counts = {name: len(texts) for name, texts in inputs.items()}
    if len(set(counts.values())) > 1:
        raise UserError(f"As many of each input were expected. Received: {counts}")
    return inputs


def main():
    inputs = given_inputs()
    if FLAGS.protocol == "rest":
        ask, server = ask_rest, FLAGS.server or "http://localhost:8501"
        if not server.startswith(("http://", "https://")):
            raise UserError(f"--server: http://host:port was expected. Received: {server}")
    else:
        ask, server = ask_grpc, FLAGS.server or "localhost:8500"

    def once(timeout):
        return ask(server, FLAGS.model, FLAGS.version, FLAGS.signature, inputs, timeout)

    for prediction in with_retries(once, FLAGS.deadline, FLAGS.retries):
        try:
            text = json.dumps(prediction, ensure_ascii=False)
            text.encode(sys.stdout.encoding)
        except UnicodeEncodeError:  # half a character, or one that the terminal does not have
            text = json.dumps(prediction)
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    flags.mark_flags_as_required(["model"])
    tool.run(main)
