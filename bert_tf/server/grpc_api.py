"""TensorFlow Serving's gRPC methods and the health checks of gRPC: messages in, messages out.

    tensorflow.serving.PredictionService    Predict, Classify, Regress, GetModelMetadata
    tensorflow.serving.ModelService         GetModelStatus

MultiInference and HandleReloadConfigRequest are refused. Messages are parsed here instead of by
gRPC, because a large one must not stop the event loop, and a wrong one is the client's error.

Reference: tensorflow_serving/apis/{prediction_service,model_service}.proto;
servables/tensorflow/{predict_util,get_model_metadata_impl}.cc, model_servers/*_impl.cc.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from bert_tf.base.optional_packages import require_package
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.example_requests import (
    CLASSIFY,
    REGRESS,
    example_arrays,
    find_example_signature,
    read_classes,
    read_numbers,
)
from bert_tf.server.limits import Hold
from bert_tf.server.message_size import count_fields
from bert_tf.server.model_requests import LARGE_BODY, SMALL, ModelRequests, find_signature
from bert_tf.server.tensor_protos import announced_bytes, arrays_of_protos, proto_of

Method = Callable[[bytes, Hold], Awaitable[bytes]]  # answers the message of a request
PURPOSE = "--grpc_port"
PREDICTION, MODEL = "tensorflow.serving.PredictionService", "tensorflow.serving.ModelService"
_SIGNATURES = "signature_def"  # the only metadata that there is
# An answer exists as arrays, as a message and as its bytes until it is written. A message for each
# number, as `Classify` and `Regress` have it, takes 100 bytes.
_COPIES_OF_ANSWER, _COPIES_OF_NUMBERS = 3, 25


class GrpcApi:
    """Answers the messages of requests.

    Attributes:
        methods: The name in the metrics and the function of each method, by its path.
    """

    def __init__(self, requests: ModelRequests):
        self._requests = requests
        names = (
            "predict",
            "classification",
            "regression",
            "get_model_metadata",
            "get_model_status",
        )
        self._apis = {
            name: require_package(f"tensorflow_serving.apis.{name}_pb2", PURPOSE) for name in names
        }
        self.methods: dict[str, tuple[str, Method]] = {
            f"/{PREDICTION}/Predict": ("predict", self._predict),
            f"/{PREDICTION}/Classify": (CLASSIFY, self._classify),
            f"/{PREDICTION}/Regress": (REGRESS, self._regress),
            f"/{PREDICTION}/MultiInference": ("other", _refuse),
            f"/{PREDICTION}/GetModelMetadata": ("metadata", self._metadata),
            f"/{MODEL}/GetModelStatus": ("status", self._status),
            f"/{MODEL}/HandleReloadConfigRequest": ("other", _refuse),
        }
        # A message needs up to 8 times the memory of its bytes, which is not counted.
        self._large = asyncio.Lock()

    async def _predict(self, body, hold):
        api = self._apis["predict"]

        def read(request, model):
            signature = find_signature(model, request.model_spec.signature_name)
            arrays = arrays_of_protos(request.inputs, signature, self._requests.limits)
            names = _filtered(request.output_filter, signature)
            return self._requests.checked(model, signature, arrays), names

        def write(outputs, names, spec):
            answer = api.PredictResponse(model_spec=spec)
            for name in names:
                answer.outputs[name].CopyFrom(proto_of(outputs[name]))
            return answer.SerializeToString()

        def announced(request):
            return announced_bytes(request.inputs)

        return await self._computed(api.PredictRequest, body, hold, read, write, announced)

    async def _classify(self, body, hold):
        api = self._apis["classification"]

        def write(outputs, labels, spec):
            answer = api.ClassificationResponse(model_spec=spec)
            found = read_classes(outputs, labels)
            for names, scores in zip(found.labels, found.scores, strict=True):
                classes = answer.result.classifications.add().classes
                for label, score in zip(names, scores.tolist(), strict=True):
                    classes.add(label=label, score=score)
            return answer.SerializeToString()

        read = self._reader_of_examples(CLASSIFY)
        return await self._computed(api.ClassificationRequest, body, hold, read, write)

    async def _regress(self, body, hold):
        api = self._apis["regression"]

        def write(outputs, labels, spec):
            answer = api.RegressionResponse(model_spec=spec)
            for value in read_numbers(outputs).tolist():
                answer.result.regressions.add(value=value)
            return answer.SerializeToString()

        read = self._reader_of_examples(REGRESS)
        return await self._computed(api.RegressionRequest, body, hold, read, write)

    def _reader_of_examples(self, method):
        def read(request, model):
            signature = find_example_signature(model, request.model_spec.signature_name, method)
            kind = request.input.WhichOneof("kind")
            if kind is None:
                raise invalid("Input is empty.")
            sent = getattr(request.input, kind)
            # Before they are serialised, which takes memory for each.
            self._requests.check_rows(len(sent.examples))
            examples = [example.SerializeToString() for example in sent.examples]
            has_context = kind == "example_list_with_context"
            context = sent.context.SerializeToString() if has_context else b""
            arrays = example_arrays(self._requests, signature, examples, context)
            labels = model.description.get("labels", [])
            return self._requests.checked(model, signature, arrays), labels

        return read

    async def _computed(self, kind, body, hold, read, write, announced=lambda request: 0):
        """Answers a request to compute.

        `read(request, model)` returns a `CheckedRequest` and what `write` needs of the request;
        `write(outputs, needed, model_spec)` returns the bytes of the answer. `announced(request)`
        returns about how many bytes `read` makes of a small body, if they may be more.
        """
        size = len(body)
        with contextlib.ExitStack() as used:
            async with self._large if size > LARGE_BODY else contextlib.nullcontext():
                request = await self._parsed(kind, body)
                del body
                version = used.enter_context(self._version_of(request))
                size = size if size > SMALL else announced(request)
                checked, needed = await self._requests.decoded(size, read, request, version.model)
                spec = _spec_of(request, version, checked.signature.name)
                del request
            computed = self._requests.compute(version, checked, hold)
            del checked
            outputs, held = await computed
            is_array = kind is self._apis["predict"].PredictRequest
            hold((_COPIES_OF_ANSWER if is_array else _COPIES_OF_NUMBERS) * held)
            return await self._requests.converted(held, write, outputs, needed, spec)

    async def _metadata(self, body, hold):
        api = self._apis["get_model_metadata"]
        request = await self._parsed(api.GetModelMetadataRequest, body)
        if not request.metadata_field:
            raise invalid("GetModelMetadataRequest must specify at least one metadata_field")
        if others := [name for name in request.metadata_field if name != _SIGNATURES]:
            raise invalid(f"Metadata field {others[0][:100]} is not supported")
        with self._version_of(request) as version:
            definitions = {_SIGNATURES: version.model.signature_def}
            answer = api.GetModelMetadataResponse(model_spec=_spec_of(request, version))
        packed = json_format.ParseDict(definitions, api.SignatureDefMap())
        answer.metadata[_SIGNATURES].Pack(packed)
        return answer.SerializeToString()

    async def _status(self, body, hold):
        api = self._apis["get_model_status"]
        request = await self._parsed(api.GetModelStatusRequest, body)
        answer = api.GetModelStatusResponse()
        for number, state in self._requests.states_of(*_version_in(request)):
            status = {
                "error_code": "UNKNOWN" if state.error else "OK",
                "error_message": state.error,
            }
            answer.model_version_status.add(version=number, state=state.state, status=status)
        return answer.SerializeToString()

    async def _parsed(self, kind, body):
        most = self._requests.limits.max_elements
        return await self._requests.decoded(len(body), parse_message, kind, body, most)

    def _version_of(self, request):
        name, *version = _version_in(request)
        if not name:
            raise invalid("ModelSpec has no name specified.")
        return self._requests.version_of(name, *version)


async def _refuse(body, hold):
    message = "The local server does not have this method; docs/local_server.md has its methods."
    raise RequestError(HTTPStatus.NOT_IMPLEMENTED, message)


def parse_message(kind: type, body: bytes, most: int) -> Any:
    """Returns a message of this class.

    Raises:
        RequestError: If its bytes are another, or it has more than `most` fields.
    """
    # A field has at least two bytes.
    if len(body) > 2 * most and count_fields(body, kind.DESCRIPTOR, most) > most:
        message = f"The message must have at most {most} fields. Received: more."
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, flag="max_elements")
    try:
        return kind.FromString(body)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        raise invalid(f"The message must be a {name}. Received: other bytes") from None


def _version_in(request):
    """Returns the name of the model, and the number or the label of the version."""
    if not request.HasField("model_spec"):
        raise invalid("Missing ModelSpec")
    spec = request.model_spec
    chosen = spec.WhichOneof("version_choice")
    number = spec.version.value if chosen == "version" else None
    return spec.name, number, spec.version_label if chosen == "version_label" else None


def _spec_of(request, version, signature_name=""):
    """Returns the `ModelSpec` of an answer."""
    spec = type(request.model_spec)(name=request.model_spec.name, signature_name=signature_name)
    spec.version.value = version.number
    return spec


def _filtered(names, signature):
    """Returns the names of the outputs that a request wants."""
    if not names:
        return list(signature.outputs)
    if len(names) > len(signature.outputs) or len(set(names)) < len(names):
        raise invalid("`output_filter` must name each output once. Received: an output twice")
    for name in names:
        if name not in signature.outputs:
            raise invalid(
                f"output tensor alias not found in signature: {name[:100]} Outputs expected to be "
                f"in the set {{{','.join(signature.outputs)}}}."
            )
    return list(names)
