r"""Sends texts to a TensorFlow Serving server, or to bert-tf serve, and prints the predictions.

    bert-tf serving_client --model=reviews --text="a waste of time" --text="wonderful"
    bert-tf serving_client --server=localhost:8500 --protocol=grpc --model=answers \
        --question="Who wrote it?" --context="Ada Lovelace wrote the first program."

Prints the prediction for each text, one JSON object per line. The inputs are the flags that are
set: --text; --text and --pair; or --question and --context. Each flag may be repeated.

If the environment variable BERT_TF_API_KEY is set, requests have it as their API key.

REST needs only Python. gRPC needs tensorflow-serving-api, which installs TensorFlow:
pip install 'bert-tf[serving]'.

A request is repeated if the server could not be reached or was too busy, after random pauses that
grow exponentially, so that clients that failed at the same time do not retry at the same time.
"""

import concurrent.futures
import functools
import http.client
import json
import math
import random
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError, user_error
from bert_tf.server.api_keys import authorization
from bert_tf.tools.common import tool
from bert_tf.tools.common.flag_table import FLAGS, define_flags

INPUTS = ("text", "pair", "question", "context")
FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
LARGEST_ANSWER = 1 << 30  # bytes
# Too many requests; bad gateway; unavailable (TF Serving's queue is full, or the model is not
# loaded yet); gateway timeout.
BUSY_STATUSES = (429, 502, 503, 504)
BUSY_CODES = ("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")  # of gRPC

define_flags("""
    server (str): The address of the server. Default: http://localhost:8501 for REST, localhost:8500
        for gRPC.
    protocol (rest|grpc, rest): The protocol of the request.
    model (str): The name of the model in the server.
    version (int >= 1): The version of the model. Default: the newest.
    signature (str, serving_default): The signature of the model.
    text (repeated str): A text, or the first text of a pair.
    pair (repeated str): The second text of a pair.
    question (repeated str): A question.
    context (repeated str): The text that answers the question.
    deadline (float >= 0.001, 10.0): Maximum number of seconds for all tries together.
    retries (int >= 0, 4): Maximum number of retries.
""")


class ServerBusy(Exception):
    """The server could not be reached, or it answered that it is too busy.

    `pause` is the number of seconds that it asks to wait; None if it does not say.
    """

    def __init__(self, reason: str, pause: float | None = None):
        super().__init__(reason)
        self.pause = pause


def with_retries(ask, deadline: float, retries: int):
    """Calls `ask`, a function of the remaining seconds; tries again while the server is busy.

    The deadline in seconds is for all tries together. Predictions do not change the server, so
    repeating them is safe.
    """
    end = time.monotonic() + deadline
    longest = FIRST_PAUSE_S
    for tries in range(1, retries + 2):
        try:
            return _within(max(0.001, end - time.monotonic()), ask)
        except ServerBusy as error:
            reason, pause = str(error), error.pause
        if pause is None:
            pause = random.uniform(0, longest)
        longest = min(2 * longest, LONGEST_PAUSE_S)
        if tries > retries or time.monotonic() + pause >= end:
            break
        time.sleep(pause)
    count = "1 try" if tries == 1 else f"{tries} tries"
    raise UserError(
        f"The server must answer in time. Received: no answer after {count} in {deadline:g} s; the "
        f"last error was: {reason}. See --deadline and --retries."
    )


def _within(seconds: float, ask):
    """Returns the result of `ask(seconds)`, or raises its exception.

    The timeout of a socket applies to each read, so an answer that arrives byte by byte would never
    end. Therefore `ask` runs in a daemon thread, which is abandoned when the time is over.
    """
    answer = concurrent.futures.Future()

    def run():
        try:
            answer.set_result(ask(seconds))
        except BaseException as error:  # raised again in the waiting thread
            answer.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return answer.result(timeout=seconds)
    except concurrent.futures.TimeoutError:
        raise ServerBusy("the answer did not end in time") from None


def ask_rest(server: str, inputs: dict[str, list[str]], timeout: float) -> list:
    """Sends one request to "http://host:port" over REST and returns one prediction per row."""
    path = f"/v1/models/{urllib.parse.quote(FLAGS.model, safe='')}"
    path += "" if FLAGS.version is None else f"/versions/{FLAGS.version}"
    rows = [dict(zip(inputs, row)) for row in zip(*inputs.values())]
    body = json.dumps({"signature_name": FLAGS.signature, "instances": rows}).encode()
    headers = {"Content-Type": "application/json", **authorization()}
    request = urllib.request.Request(f"{server.rstrip('/')}{path}:predict", body, headers)
    try:
        status, headers, text = _exchange(request, timeout)
    except (OSError, http.client.HTTPException) as error:
        # No connection, a broken one, a truncated answer, or a timeout.
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
        received = f"{text[:200].decode('utf-8', errors='replace')!r}"
        raise user_error(server, "answer with TensorFlow Serving's JSON", received)
    return predictions


def _exchange(request, timeout):
    """Returns the status, the headers and the body of an answer, whatever the status is."""
    try:
        response = urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        response = error
    with response:
        text = response.read(LARGEST_ANSWER + 1)
        if len(text) > LARGEST_ANSWER:
            raise UserError(f"The answer must be at most {LARGEST_ANSWER} bytes. Received: more")
        if response.length:  # what is missing: `read` with a size does not detect a truncated body
            raise http.client.IncompleteRead(text, response.length)
        return response.status, response.headers, text


def _seconds(after: str | None) -> float | None:
    """Returns the seconds of a `Retry-After` header, or None if it is a date or invalid."""
    try:
        seconds = float(after or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def ask_grpc(server: str, inputs: dict[str, list[str]], timeout: float) -> list:
    """Sends one request over gRPC; as `ask_rest`, but `server` is "host:port"."""
    require_package("tensorflow_serving.apis", "--protocol=grpc")
    import grpc
    import tensorflow as tf
    from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

    request = predict_pb2.PredictRequest()
    request.model_spec.name = FLAGS.model
    request.model_spec.signature_name = FLAGS.signature
    if FLAGS.version is not None:
        request.model_spec.version.value = FLAGS.version
    for name, texts in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(texts, dtype=tf.string))
    try:
        with grpc.insecure_channel(server) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            metadata = [(name.lower(), value) for name, value in authorization().items()]
            response = stub.Predict(request, timeout=timeout, metadata=metadata)
    except grpc.RpcError as error:
        reason = f"{error.code().name}: {error.details()}"
        if error.code().name in BUSY_CODES:
            raise ServerBusy(reason) from None
        raise UserError(f"{server} refused the request: {reason}") from None
    outputs = {name: tf.make_ndarray(value) for name, value in response.outputs.items()}
    count = len(next(iter(inputs.values())))
    return [
        {name: _plain(values[row].tolist()) for name, values in sorted(outputs.items())}
        for row in range(count)
    ]


def _plain(value):
    """Converts bytes to strings, also in nested lists."""
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value


def _message(body: bytes) -> str:
    """Returns the `error` of TensorFlow Serving's JSON, or the start of another body."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return body[:200].decode("utf-8", errors="replace")


def given_inputs() -> dict[str, list[str]]:
    inputs = {name: FLAGS[name].value for name in INPUTS if FLAGS[name].value}
    if not inputs:
        raise user_error("--text, --text and --pair, or --question and --context", "be set", "none")
    counts = {name: len(texts) for name, texts in inputs.items()}
    if len(set(counts.values())) > 1:
        raise UserError(f"All inputs must be given the same number of times. Received: {counts}")
    return inputs


def main():
    inputs = given_inputs()
    if FLAGS.protocol == "rest":
        ask, server = ask_rest, FLAGS.server or "http://localhost:8501"
        if not server.startswith(("http://", "https://")):
            raise UserError(f"--server must be http://host:port. Received: --server={server}")
    else:
        ask, server = ask_grpc, FLAGS.server or "localhost:8500"

    ask = functools.partial(ask, server, inputs)
    for prediction in with_retries(ask, FLAGS.deadline, FLAGS.retries):
        try:
            text = json.dumps(prediction, ensure_ascii=False)
            text.encode(sys.stdout.encoding)
        except UnicodeEncodeError:  # a lone surrogate, or a character that the terminal lacks
            text = json.dumps(prediction)
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    tool.run(main, "model")
