"""TensorFlow Serving's gRPC: what a client of its documentation gets, also when it is wrong."""

import contextlib
import re
import socket
import struct
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from tests.server.conftest import LIMITS
from tests.server.process import PATIENCE, ServerProcess

grpc = pytest.importorskip("grpc", reason="needs grpcio")


def _serving(name):
    reason = "needs tensorflow-serving-api"
    return pytest.importorskip(f"tensorflow_serving.apis.{name}", reason=reason)


def _health(name):
    return pytest.importorskip(f"grpc_health.v1.{name}", reason="needs grpcio-health-checking")


classification_pb2 = _serving("classification_pb2")
get_model_metadata_pb2 = _serving("get_model_metadata_pb2")
get_model_status_pb2 = _serving("get_model_status_pb2")
health_pb2 = _health("health_pb2")
health_pb2_grpc = _health("health_pb2_grpc")
inference_pb2 = _serving("inference_pb2")
model_management_pb2 = _serving("model_management_pb2")
model_service_pb2_grpc = _serving("model_service_pb2_grpc")
predict_pb2 = _serving("predict_pb2")
prediction_service_pb2_grpc = _serving("prediction_service_pb2_grpc")
regression_pb2 = _serving("regression_pb2")

TEXTS = ["the good film.", "bad", "", "good café", "film " * 30]
PREDICT = "/tensorflow.serving.PredictionService/Predict"
FLAGS = ("--grpc_port=0", "--version_labels=stable=1,gone=7")


@pytest.fixture(scope="module")
def both(exported):
    """A server with both protocols, whose last test leaves it alive."""
    flags = [f"--{name}={value}" for name, value in LIMITS.items()]
    with ServerProcess(exported, *FLAGS, *flags) as process:
        yield process
        status, printed = process.stop()
        assert status == 0 and "Traceback" not in printed, printed


def address_of(process):
    return re.search(r"^gRPC: (\S+:\d+)$", process.process.text(), re.MULTILINE).group(1)


@contextlib.contextmanager
def channel_to(process):
    with grpc.insecure_channel(address_of(process)) as channel:
        yield channel


@pytest.fixture(scope="module")
def channel(both):
    with channel_to(both) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request_of(inputs=None, *, version=None, output_filter=(), **spec):
    request = predict_pb2.PredictRequest(output_filter=output_filter)
    for name, value in {"name": "tiny", **spec}.items():
        setattr(request.model_spec, name, value)
    if version is not None:
        request.model_spec.version.value = version
    for name, value in (inputs or {"text": ["good"]}).items():
        is_proto = isinstance(value, tensor_pb2.TensorProto)
        request.inputs[name].CopyFrom(value if is_proto else tf.make_tensor_proto(value))
    return request


def outputs_of(stub, request):
    answer = stub.Predict(request, timeout=PATIENCE)
    return {name: tf.make_ndarray(value) for name, value in answer.outputs.items()}


def refusal(function, *args, **options):
    """The name of the code and the message with which a call is refused."""
    with pytest.raises(grpc.RpcError) as error:
        function(*args, timeout=PATIENCE, **options)
    return error.value.code().name, error.value.details()


def test_texts_and_tokens_give_the_numbers_of_rest(both, stub, tiny_classifier):
    _, answer = both.predict({"inputs": TEXTS})
    expected = answer["outputs"]
    outputs = outputs_of(stub, request_of({"text": TEXTS}))
    assert outputs.keys() == expected.keys()
    assert outputs["label"].tolist() == [label.encode() for label in expected["label"]]
    for name in ("probabilities", "logits"):
        assert outputs[name].dtype == np.float32
        np.testing.assert_allclose(outputs[name], np.float32(expected[name]), atol=1e-6)
    tokens = {name: value.numpy() for name, value in tiny_classifier.tokenize(TEXTS).items()}
    found = outputs_of(stub, request_of(tokens, signature_name="tokens"))
    np.testing.assert_allclose(found["logits"], outputs["logits"], atol=1e-5)


@pytest.mark.parametrize("spec", [{"version": 1}, {"version_label": "stable"}])
def test_versions_labels_and_output_filter(both, stub, spec):
    answer = stub.Predict(request_of(output_filter=["label"], **spec), timeout=PATIENCE)
    assert list(answer.outputs) == ["label"]
    found = answer.model_spec
    assert (found.name, found.version.value) == ("tiny", 1)
    assert found.signature_name == "serving_default"
    path = "labels/stable" if "version_label" in spec else "versions/1"
    assert both.predict({"instances": ["good"]}, f"/v1/models/tiny/{path}")[0] == 200
    status, answer = both.json("GET", f"/v1/models/tiny/{path}")
    assert status == 200 and answer["model_version_status"][0]["version"] == "1"


def example(**features):
    lists = {name: tf.train.BytesList(value=[value]) for name, value in features.items()}
    lists = {name: tf.train.Feature(bytes_list=value) for name, value in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=lists))


def test_classify(both, stub):
    _, answer = both.predict({"instances": ["the good film.", "bad"]})
    scores = [row["probabilities"] for row in answer["predictions"]]
    expected = [[["bad", row[0]], ["good", row[1]]] for row in scores]
    rows = [example(text=b"the good film."), example(text=b"bad")]
    plain = classification_pb2.ClassificationRequest()
    plain.input.example_list.examples.extend(rows)
    with_context = classification_pb2.ClassificationRequest()
    with_context.input.example_list_with_context.context.CopyFrom(rows[0])
    with_context.input.example_list_with_context.examples.extend([example(), rows[1]])
    for request in (plain, with_context):
        request.model_spec.name = "tiny"
        result = stub.Classify(request, timeout=PATIENCE).result
        found = [[[c.label, c.score] for c in row.classes] for row in result.classifications]
        assert [[c[0] for c in row] for row in found] == [["bad", "good"]] * 2
        np.testing.assert_allclose([[c[1] for c in row] for row in found], scores, atol=1e-6)
    for body in (
        {"examples": [{"text": "the good film."}, {"text": ["bad"]}]},
        {"context": {"text": "the good film."}, "examples": [{}, {"text": {"b64": "YmFk"}}]},
    ):
        status, answer = both.json("POST", "/v1/models/tiny:classify", body)
        assert status == 200, answer
        for row, wanted in zip(answer["results"], expected, strict=True):
            assert [pair[0] for pair in row] == [pair[0] for pair in wanted]
            np.testing.assert_allclose([p[1] for p in row], [p[1] for p in wanted], atol=1e-6)


def test_metadata_and_status(both, channel, stub):
    request = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
    request.model_spec.name = "tiny"
    answer = stub.GetModelMetadata(request, timeout=PATIENCE)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    _, metadata = both.json("GET", "/v1/models/tiny/metadata")
    wanted = metadata["metadata"]["signature_def"]["signature_def"]
    assert signatures.signature_def.keys() == wanted.keys()
    text = signatures.signature_def["serving_default"].inputs["text"]
    assert text.dtype == tf.string.as_datatype_enum and text.tensor_shape.dim[0].size == -1
    request.metadata_field[:] = ["other"]
    assert refusal(stub.GetModelMetadata, request)[0] == "INVALID_ARGUMENT"
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = "tiny"
    (state,) = models.GetModelStatus(request, timeout=PATIENCE).model_version_status
    assert (state.version, state.State.Name(state.state)) == (1, "AVAILABLE")
    assert state.status.error_code == 0
    request.model_spec.version.value = 9
    assert refusal(models.GetModelStatus, request)[0] == "NOT_FOUND"
    reload = model_management_pb2.ReloadConfigRequest()
    assert refusal(models.HandleReloadConfigRequest, reload)[0] == "UNIMPLEMENTED"
    multi = inference_pb2.MultiInferenceRequest()
    assert refusal(stub.MultiInference, multi)[0] == "UNIMPLEMENTED"


def proto(dtype=tf.string, dims=(1,), **values):
    made = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum, **values)
    for size in dims:
        made.tensor_shape.dim.add(size=size)
    return made


# The request, its code and a part of the message.
REFUSED = {
    "no name": (request_of(name=""), "INVALID_ARGUMENT", "no name specified"),
    "name": (
        request_of(name="other"),
        "NOT_FOUND",
        "Servable not found for request: Latest(other)",
    ),
    "version": (request_of(version=9), "NOT_FOUND", "Specific(tiny, 9)"),
    "label": (request_of(version_label="x"), "INVALID_ARGUMENT", "version label: x"),
    "label of no version": (request_of(version_label="gone"), "NOT_FOUND", "Specific(tiny, 7)"),
    "signature": (request_of(signature_name="x"), "INVALID_ARGUMENT", "not found in signature"),
    "no spec": (predict_pb2.PredictRequest(), "INVALID_ARGUMENT", "Missing ModelSpec"),
    "filter": (request_of(output_filter=["x"]), "INVALID_ARGUMENT", "alias not found"),
    "filter twice": (request_of(output_filter=["label"] * 2), "INVALID_ARGUMENT", "twice"),
    "input": (request_of({"txt": ["a"]}), "INVALID_ARGUMENT", "must be text. Received: txt"),
    "dtype": (request_of({"text": [1]}), "INVALID_ARGUMENT", "must be string [?]"),
    "no rows": (request_of({"text": proto(dims=[0])}), "INVALID_ARGUMENT", "at least one row"),
    "expands": (
        request_of({"text": proto(dims=[2**50], string_val=[b"a"])}),
        "INVALID_ARGUMENT",
        "must have at most 65536 values. Received: shape [1125899906842624]. See --max_elements.",
    ),
    "rows": (
        request_of({"text": proto(dims=[65], string_val=[b"a"])}),
        "INVALID_ARGUMENT",
        "at most 64 rows. Received: 65 rows. See --max_rows.",
    ),
    "long": (request_of({"text": ["a" * 2001]}), "INVALID_ARGUMENT", "See --max_text_length."),
    "large": (request_of({"text": ["a" * 100_001]}), "RESOURCE_EXHAUSTED", "larger than max"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(stub, name):
    request, code, message = REFUSED[name]
    found = refusal(stub.Predict, request)
    assert found[0] == code and message in found[1], found


def test_a_classifier_cannot_regress(both, stub):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "tiny"
    request.input.example_list.examples.append(example(text=b"a"))
    code, message = refusal(stub.Regress, request)
    assert code == "INVALID_ARGUMENT" and "an output outputs or score" in message
    body = {"examples": [{"text": "a"}]}
    status, answer = both.json("POST", "/v1/models/tiny:regress", body)
    assert status == 400 and answer["error"] == message


def test_messages_of_a_stranger(both, channel):
    call = channel.unary_unary(PREDICT)
    good = request_of({"text": ["a good film"] * 3}).SerializeToString()
    assert refusal(call, b"\xff" * 9)[0] == "INVALID_ARGUMENT"
    random = np.random.default_rng(0)
    answered = 0
    for _ in range(200):
        cut = bytearray(good[: random.integers(len(good) + 1)])
        for place in random.integers(max(1, len(cut)), size=random.integers(4)):
            cut[place : place + 1] = random.bytes(1)
        try:
            call(bytes(cut), timeout=PATIENCE)
            answered += 1
        except grpc.RpcError as error:
            assert error.code().name in ("INVALID_ARGUMENT", "NOT_FOUND"), error.details()
    assert answered < 200
    compressed = refusal(call, good, compression=grpc.Compression.Gzip)
    assert compressed[0] == "UNIMPLEMENTED"
    assert refusal(channel.stream_unary(PREDICT), iter([]))[0] == "INVALID_ARGUMENT"
    assert refusal(channel.unary_unary("/tensorflow.serving.X/Y"), b"")[0] == "UNIMPLEMENTED"
    assert both.predict({"instances": ["good"]})[0] == 200
    assert call(good, timeout=PATIENCE)


def none_until(come):
    """Messages of a client that sends none, and ends after an event."""
    come.wait(PATIENCE)
    yield from ()


def test_a_message_that_does_not_come(channel):
    come = threading.Event()
    code, message = refusal(channel.stream_unary(PREDICT), none_until(come))
    come.set()
    assert (code, message[-28:]) == ("DEADLINE_EXCEEDED", " See --read_timeout_seconds.")


def test_a_slow_message_gives_its_place_to_one_that_waits(exported):
    flags = ("--grpc_port=0", "--max_body_bytes=100000", "--max_buffered_bytes=100000")  # one place
    come = threading.Event()
    with ServerProcess(exported, *flags) as server, channel_to(server) as channel:
        slow = channel.stream_unary(PREDICT).future(none_until(come), timeout=PATIENCE)
        end = time.monotonic() + PATIENCE
        while not server.metric("bert_tf_requests_in_progress") and time.monotonic() < end:
            time.sleep(0.01)
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        assert outputs_of(stub, request_of())
        assert slow.code().name == "UNAVAILABLE" and "others wait" in slow.details()
        come.set()


def frame(kind, stream, payload=b"", flags=0):
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    length = struct.pack(">I", len(payload))[1:]
    return length + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def frames_of(connection):
    """Yields the kind and the payload of each frame until the server closes the connection."""
    with connection.makefile("rb") as read:
        while header := read.read(9):
            yield header[3], read.read(int.from_bytes(header[:3], "big"))


def block(path):
    """The headers of a request as literals without indexing (RFC 7541, section 6.2.2)."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    texts = [text.encode() for field in fields.items() for text in field]
    literals = [bytes([len(text)]) + text for text in texts]
    return b"".join(b"\0" + name + value for name, value in zip(literals[::2], literals[1::2]))


_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _WINDOW, _CONTINUATION = 0, 1, 3, 4, 6, 8, 9
_END_HEADERS, _INITIAL_WINDOW_SIZE = 4, 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_BLOCK = block(PREDICT)
FLOODS = {
    "CVE-2023-44487 reset": lambda stream: (
        frame(_HEADERS, stream, _BLOCK, _END_HEADERS) + frame(_RESET, stream, b"\0\0\0\x08")
    ),
    # The server resets these streams itself, because they have a window update of 0.
    "CVE-2025-8671 made to reset": lambda stream: (
        frame(_HEADERS, stream, _BLOCK, _END_HEADERS) + frame(_WINDOW, stream, bytes(4))
    ),
    "CVE-2024-27316 continuation": lambda stream: (
        frame(_HEADERS, 1, _BLOCK) if stream == 1 else frame(_CONTINUATION, 1, b"\0\1a\1b" * 400)
    ),
    "CVE-2019-9512 ping": lambda _: frame(_PING, 0, bytes(8)),
    "CVE-2019-9515 settings": lambda _: frame(_SETTINGS, 0),
    "CVE-2019-9518 empty": lambda stream: (
        frame(_HEADERS, 1, _BLOCK, _END_HEADERS) if stream == 1 else frame(_DATA, 1)
    ),
}


@pytest.mark.parametrize("number", FLOODS)
def test_floods_of_frames(both, stub, number):
    """Clients that never read: others are answered meanwhile, and the memory stays."""
    before = both.metric("process_resident_memory_bytes")
    host, port = address_of(both).rsplit(":", 1)
    with socket.create_connection((host, port), timeout=PATIENCE) as connection:
        with contextlib.suppress(ConnectionError):  # the server may close it
            connection.sendall(_PREFACE + frame(_SETTINGS, 0))
            connection.settimeout(1)  # the server may also read no more
            with contextlib.suppress(TimeoutError):
                for first in range(0, 6_000, 200):
                    streams = range(2 * first + 1, 2 * (first + 200), 2)
                    connection.sendall(b"".join(map(FLOODS[number], streams)))
        assert stub.Predict(request_of(), timeout=PATIENCE).outputs
    assert both.metric("process_resident_memory_bytes") < before + (100 << 20)


def test_metrics(both, stub):
    name = 'bert_tf_requests_total{method="predict",protocol="grpc",status="OK"}'
    refused = 'bert_tf_requests_refused_total{flag="max_rows"}'
    before, rows = both.metric(name), both.metric("bert_tf_batch_rows_sum")
    before_refused = both.metric(refused)
    outputs_of(stub, request_of({"text": ["good", "bad"]}))
    refusal(stub.Predict, request_of({"text": ["a"] * 65}))
    assert both.metric(name) == before + 1
    assert both.metric("bert_tf_batch_rows_sum") >= rows + 2
    assert both.metric(refused) == before_refused + 1


def test_keys_and_a_graceful_stop(exported, tmp_path):
    (tmp_path / "keys").write_text("a-key")
    flags = (f"--api_key_file={tmp_path}/keys", "--grpc_port=0", "--drain_seconds=5")
    with ServerProcess(exported, *flags) as server, channel_to(server) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        health = health_pb2_grpc.HealthStub(channel)
        key = {"metadata": (("authorization", "Bearer a-key"),)}
        assert refusal(stub.Predict, request_of())[0] == "UNAUTHENTICATED"
        assert stub.Predict(request_of(), timeout=PATIENCE, **key).outputs
        asked = health_pb2.HealthCheckRequest()
        assert (
            health.Check(asked, timeout=PATIENCE).status == health_pb2.HealthCheckResponse.SERVING
        )
        other = health_pb2.HealthCheckRequest(service="other")
        assert refusal(health.Check, other)[0] == "NOT_FOUND"
        watched = health.Watch(asked, timeout=2 * PATIENCE)
        assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
        server.process.terminate()
        assert next(watched).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert stub.Predict(request_of(), timeout=PATIENCE, **key).outputs  # while it drains
        assert server.process.wait(PATIENCE) == 0
        printed = server.process.text()
        assert "Stopped: 3 requests answered" in printed and "Traceback" not in printed, printed


def test_a_watch_whose_first_status_is_written_late_hears_the_second(exported):
    """The client's window is closed when the server begins to stop, and opened thereafter."""
    closed = frame(_SETTINGS, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0))
    request = frame(_HEADERS, 1, block("/grpc.health.v1.Health/Watch"), _END_HEADERS)
    empty_message = frame(_DATA, 1, bytes(5))
    with ServerProcess(exported, "--grpc_port=0", f"--drain_seconds={PATIENCE}") as server:
        host, port = address_of(server).rsplit(":", 1)
        with socket.create_connection((host, port), timeout=PATIENCE) as connection:
            connection.sendall(_PREFACE + closed + request + empty_message)
            frames = frames_of(connection)
            assert any(kind == _HEADERS for kind, _ in frames)
            server.process.terminate()
            while server.ask("GET", "/readyz")[0] != 503:
                time.sleep(0.01)
            connection.sendall(frame(_WINDOW, 1, struct.pack(">I", 1000)))
            data = (payload for kind, payload in frames if kind == _DATA)
            assert next(data) == b"\0\0\0\0\2\x08\1"  # SERVING
            assert next(data) == b"\0\0\0\0\2\x08\2"  # NOT_SERVING
