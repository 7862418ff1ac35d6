"""SavedModels in programs that others wrote: TensorFlow's own command, OpenVINO, ONNX, TF Serving's
messages. MiniLM on real sentences gives Keras's numbers in each."""

import asyncio
import dataclasses
import importlib
import json
import pathlib
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertSentenceEncoder, BertTextClassifier
from bert_tf.serving import export
from bert_tf.text import SubwordTokenizer
from tests.conftest import REPOSITORY
from tests.document_blocks import read_blocks
from tests.serving.test_c_program import SENTENCES
from tests.text.subwords import unigram_definition

pytestmark = pytest.mark.peers


@pytest.fixture(scope="module")
def encoder(minilm):
    return BertSentenceEncoder.from_pretrained(minilm)


@pytest.fixture(scope="module")
def vectors(encoder):
    return encoder.encode(SENTENCES)


@pytest.fixture(scope="module")
def tokens(encoder):
    return {name: value.numpy() for name, value in encoder.tokenize(SENTENCES).items()}


@pytest.fixture(scope="module")
def portable(encoder, tmp_path_factory):
    return pathlib.Path(export(encoder, tmp_path_factory.mktemp("portable")))


def test_saved_model_cli(portable, vectors, tmp_path):
    # The command imports tensorflow alone; the tokenizer's operations come with tensorflow_text.
    command = (
        "import sys, tensorflow_text\n"
        "from tensorflow.python.tools import saved_model_cli\n"
        "sys.exit(saved_model_cli.main())"
    )
    subprocess.run(
        [
            sys.executable,
            "-c",
            command,
            "run",
            f"--dir={portable}",
            "--tag_set=serve",
            "--signature_def=serving_default",
            f"--input_exprs=text={SENTENCES!r}",
            f"--outdir={tmp_path}",
        ],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    np.testing.assert_allclose(np.load(tmp_path / "vector.npy"), vectors, atol=1e-5)


def test_openvino(portable, tokens, vectors):
    openvino = pytest.importorskip("openvino", reason="needs openvino")
    loaded = tf.saved_model.load(portable)  # holds the variables that the signature reads
    model = openvino.convert_model(loaded.signatures["tokens"])
    names = {port.get_any_name() for port in model.inputs}
    assert names == set(tokens), names
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    compiled = openvino.Core().compile_model(model, "CPU", options)
    for count in (len(SENTENCES), 2):  # sizes stay open
        given = {name: values[:count] for name, values in tokens.items()}
        (result,) = compiled(given).values()
        np.testing.assert_allclose(result, vectors[:count], atol=1e-5)


PRINT_PEAK = """
import runpy
try:
    runpy.run_module("bert_tf.tools.export_onnx", run_name="__main__", alter_sys=True)
finally:
    print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def onnx_session(saved_model, path):
    """Runs tools/export_onnx.py and opens what it wrote."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    pytest.importorskip("tf2onnx", reason="needs tf2onnx")
    flags = [f"--saved_model={saved_model}", f"--output_file={path}"]
    command = [sys.executable, "-c", PRINT_PEAK, *flags]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "largest difference" in result.stdout
    *_, peak, unit = result.stdout.split()
    # TensorFlow needs most of it. With the weights in tf2onnx's graph it was 6.3 GB for MiniLM.
    assert unit == "kB" and int(peak) < 3 * 2**20
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def onnx_folder(portable, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    onnx_session(portable, folder / "onnx" / "minilm.onnx")
    return folder


def test_export_onnx(onnx_folder, tokens, vectors):
    onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")
    session = onnxruntime.InferenceSession(onnx_folder / "onnx" / "minilm.onnx")
    assert {given.name for given in session.get_inputs()} == set(tokens)
    assert [output.name for output in session.get_outputs()] == ["vector"]
    (result,) = session.run(None, tokens)
    np.testing.assert_allclose(result, vectors, atol=1e-5)


def test_programs_without_tensorflow(onnx_folder, vectors, monkeypatch):
    """Those of docs/serving_without_tensorflow.md; Triton's module is a fake."""
    for name in ("aiohttp", "openvino", "tokenizers"):
        pytest.importorskip(name, reason=f"needs {name}")
    for block in read_blocks(REPOSITORY / "docs" / "serving_without_tensorflow.md"):
        if block.file:
            (onnx_folder / block.file).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(onnx_folder)
    monkeypatch.syspath_prepend(onnx_folder)
    openvino_vectors = importlib.import_module("openvino_vectors")
    np.testing.assert_allclose(openvino_vectors.vectors(SENTENCES), vectors, atol=1e-5)

    request = mock.AsyncMock()
    request.json.return_value = {"texts": SENTENCES}
    response = asyncio.run(importlib.import_module("http_server").vectors(request))
    np.testing.assert_allclose(json.loads(response.text)["vectors"], vectors, atol=1e-5)

    version = onnx_folder / "1"
    shutil.copytree(onnx_folder / "onnx", version)
    triton = mock.Mock()
    triton.get_input_tensor_by_name = lambda texts, name: mock.Mock(as_numpy=lambda: texts)
    triton.Tensor = lambda name, values: values
    triton.InferenceResponse = lambda tensors: tensors[0]
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", triton)
    model = importlib.import_module("model").TritonPythonModel()
    model.initialize({"model_repository": str(onnx_folder), "model_version": "1"})
    texts = np.array([[sentence.encode()] for sentence in SENTENCES], object)
    parts = model.execute([texts[:1], texts[1:]])
    assert [len(part) for part in parts] == [1, len(SENTENCES) - 1]
    np.testing.assert_allclose(np.concatenate(parts), vectors, atol=1e-5)


def test_export_onnx_of_a_model_with_a_subword_tokenizer(tiny_config, tmp_path):
    tokenizer = SubwordTokenizer(unigram_definition([("▁film", -1.0), ("▁", -2.0), ("s", -3.0)]))
    options = {"model_type": "xlm-roberta", "type_vocab_size": 1, "position_offset": 2}
    config = dataclasses.replace(
        tiny_config, vocab_size=tokenizer.vocab_size, pad_token_id=1, **options
    )
    model = BertTextClassifier(BertBackbone(config), tokenizer=tokenizer)
    session = onnx_session(export(model, tmp_path / "saved_model"), tmp_path / "model.onnx")
    tokens = {name: value.numpy() for name, value in model.tokenize(["films", "film s"]).items()}
    outputs = dict(
        zip((output.name for output in session.get_outputs()), session.run(None, tokens))
    )
    probabilities = tf.nn.softmax(model(model.tokenize(["films", "film s"])))
    np.testing.assert_allclose(outputs["probabilities"], probabilities, atol=1e-5)


def test_warmup_requests_are_tf_servings_messages(portable, vectors):
    prediction_log_pb2 = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2", reason="needs tensorflow-serving-api"
    )
    serving = tf.saved_model.load(portable).signatures
    path = portable / "assets.extra" / "tf_serving_warmup_requests"
    records = [record.numpy() for record in tf.data.TFRecordDataset([str(path)])]
    assert len(records) == 3
    for record in records:
        log = prediction_log_pb2.PredictionLog.FromString(record)
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        assert request.model_spec.signature_name == "serving_default"
        inputs = {
            name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()
        }
        outputs = serving[request.model_spec.signature_name](**inputs)
        assert outputs["vector"].shape == [len(inputs["text"]), vectors.shape[1]]
        # Nothing that the original does not know: a message without its unknown fields is the same.
        known = prediction_log_pb2.PredictionLog.FromString(record)
        known.DiscardUnknownFields()
        assert known.ByteSize() == len(record)


def test_a_grpc_server_of_tf_servings_protocol(portable, vectors):
    """tools/serving_client.py over gRPC, against a server of TF Serving's service definition."""
    grpc = pytest.importorskip("grpc", reason="needs grpcio")
    apis = "tensorflow_serving.apis"
    predict_pb2 = pytest.importorskip(f"{apis}.predict_pb2", reason="needs tensorflow-serving-api")
    service = pytest.importorskip(f"{apis}.prediction_service_pb2_grpc", reason="needs grpcio")
    from concurrent import futures

    serving = tf.saved_model.load(portable).signatures
    refusals = []

    class Server(service.PredictionServiceServicer):
        def Predict(self, request, context):
            if not refusals:  # the first request finds it busy
                refusals.append(request.model_spec.name)
                context.abort(grpc.StatusCode.UNAVAILABLE, "the queue is full")
            inputs = {
                name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()
            }
            response = predict_pb2.PredictResponse()
            for name, value in serving[request.model_spec.signature_name](**inputs).items():
                response.outputs[name].CopyFrom(tf.make_tensor_proto(value.numpy()))
            return response

    server = grpc.server(futures.ThreadPoolExecutor(2))
    service.add_PredictionServiceServicer_to_server(Server(), server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    try:
        printed = subprocess.run(
            [
                sys.executable,
                "tools/serving_client.py",
                "--protocol=grpc",
                "--model=minilm",
                f"--server=localhost:{port}",
                "--deadline=120",
                *(f"--text={sentence}" for sentence in SENTENCES if sentence),
            ],
            cwd=REPOSITORY,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    finally:
        server.stop(None)
    assert refusals == ["minilm"]
    received = [json.loads(line)["vector"] for line in printed.splitlines()]
    expected = [vector for vector, sentence in zip(vectors, SENTENCES) if sentence]
    np.testing.assert_allclose(received, expected, atol=1e-5)
